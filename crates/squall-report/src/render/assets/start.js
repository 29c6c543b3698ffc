// Draws all plots, and again when their colors change.
const redrawAll = () => redraws.forEach(f => f());
redrawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
// Paper is white: canvases must be drawn again in its colors.
matchMedia("print").addEventListener("change", redrawAll);
