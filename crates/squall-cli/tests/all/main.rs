//! One binary for all integration tests, because each one links the whole tool.

mod cli;
mod examples;
mod files;
mod guarded;
mod options;
mod recv_tools;
mod top;
