//! Application programs: in go instructions (by hand, built in, or from a capture), out comes an
//! [`squall_tcp::Application`] that speaks and listens by them.
#![forbid(unsafe_code)]
