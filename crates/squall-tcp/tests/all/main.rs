//! All tests are in one binary, because every binary is linked with all dependencies. The packet
//! scripts have their own, because their runner replaces libtest.

mod common;
mod congestion;
mod pair;
mod properties;
mod script_language;
