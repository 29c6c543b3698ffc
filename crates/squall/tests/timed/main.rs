//! Tests on real time. In the same process as those of `all`, they would run late.

mod control;
mod flows;
mod mix;
mod nodes;
mod routers;
mod stateful;
