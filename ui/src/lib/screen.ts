// How much room there is: where a table has fewer columns, not only narrower ones.

import { MediaQuery } from "svelte/reactivity";

/** As the widths in the style sheets. */
export const narrow = new MediaQuery("max-width: 760px");
