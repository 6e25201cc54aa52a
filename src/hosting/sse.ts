/**
 * Owns: reading a Server-Sent Events stream: event id, retry, data.
 * Leaves to others: what the data holds (http-reply.ts, sse-transport.ts). Source: WHATWG HTML, "Server-sent events".
 */
import { createParser } from "eventsource-parser";

export interface SseReader {
  /** `type` is "message" unless the stream says otherwise; `id` only when this event brought one. */
  event(event: { readonly type: string; readonly data: string; readonly id?: string }): void;
  /** The stream's `retry` field, in milliseconds. */
  retry?(ms: number): void;
}

/**
 * Reads until the stream ends, however it ends. An event that was cut off by the end is still handed over when its data is all there
 * but never with its id: half an id would be a wrong place to resume from.
 */
export async function readSse(body: AsyncIterable<Buffer>, reader: SseReader): Promise<void> {
  let atEnd = false;
  const parser = createParser({
    onEvent(event) {
      const id = atEnd ? undefined : event.id;
      reader.event({ type: event.event ?? "message", data: event.data, ...(id === undefined || id === "" ? {} : { id }) });
    },
    onRetry: (ms) => reader.retry?.(ms),
  });
  const decoder = new TextDecoder();
  for await (const chunk of body) parser.feed(decoder.decode(chunk, { stream: true }));
  atEnd = true;
  parser.feed(`${decoder.decode()}\n\n`);
}
