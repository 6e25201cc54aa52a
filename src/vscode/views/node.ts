/**
 * Owns: what every row of our views has in common: its class tells commands that a person clicked, while scripts pass plain values.
 */
import { ThemeColor, ThemeIcon, TreeItem, TreeItemCollapsibleState } from "vscode";
import type { MarkdownString } from "vscode";

export abstract class ViewNode extends TreeItem {
  /** Tells a row from a plain object by type as well: all fields of a TreeItem are optional. */
  readonly isRow = true;

  protected constructor(id: string, label: string, collapsible: TreeItemCollapsibleState = TreeItemCollapsibleState.None) {
    super(label, collapsible);
    this.id = id;
  }
}

export function icon(name: string, color?: string): ThemeIcon {
  return color === undefined ? new ThemeIcon(name) : new ThemeIcon(name, new ThemeColor(color));
}

/** Foreign text in a tooltip, as it is. With `appendText` alone every blank is a no-break one, and lines break inside words. */
export function addText(tooltip: MarkdownString, text: string): MarkdownString {
  for (const [index, word] of text.split(/ +/).entries()) {
    if (index > 0) tooltip.appendMarkdown(" ");
    tooltip.appendText(word);
  }
  return tooltip;
}
