//! Tests on real time, which would run late next to those of `all`.

mod control;
mod flows;
mod mix;
mod nodes;
mod stateful;
