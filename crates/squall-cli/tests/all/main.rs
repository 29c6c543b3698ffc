//! A single binary for all integration tests, because each binary links the whole tool.

mod cli;
mod examples;
mod files;
mod guarded;
mod options;
mod recv_tools;
mod top;
