//! One binary for these, as each that is linked carries the whole tool.

mod cli;
mod examples;
mod files;
mod guarded;
mod options;
mod recv_tools;
mod top;
