//! Runs on real time, which would be late beside those of `all`.

mod control;
mod flows;
mod mix;
mod nodes;
mod stateful;
