/** The module that TensorBoard's page loads. */
import { App } from "./app";
import { report } from "./net/report";
import compare from "./style/compare.css";
import base from "./style/index.css";
import overview from "./style/overview.css";
import print from "./style/print.css";
import run from "./style/run.css";
import timeline from "./style/timeline.css";
import { h } from "./view/element";

/** Called once by TensorBoard, in the frame it has made for us. */
export function render(): void {
  document.documentElement.lang = "en";
  if (!report) document.title = "Supervisor";
  // No style element: a report's policy allows none.
  const style = new CSSStyleSheet();
  style.replaceSync(base + overview + run + compare + timeline + print);
  document.adoptedStyleSheets.push(style);
  const root = h("div", { id: "supervisor", class: report && "report" });
  document.body.append(root);
  new App().start(root);
}

// In a report there is no caller.
if (report) render();
