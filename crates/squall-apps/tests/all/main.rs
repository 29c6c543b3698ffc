//! All tests are in one binary, because every binary is linked with all dependencies.

mod answers;
mod at_once;
mod common;
mod grpc;
mod http2;
mod http3;
mod import;
mod mistakes;
mod programs;
mod proxy;
mod tls;
mod websocket;
