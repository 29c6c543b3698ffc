//! The fuzz targets as modules, each with a function that takes an input. A library, because the
//! files that some of them include have tests.
#![forbid(unsafe_code)]
#![allow(unused_attributes)] // `no_main` is for libFuzzer
#![allow(clippy::duplicate_mod)] // files that several targets include

// The targets take a macro from libFuzzer's crate.
extern crate self as libfuzzer_sys;

mod macros {
    /// Makes the function; text is given on if it is UTF-8.
    #[macro_export]
    macro_rules! fuzz_target {
        (|$data:ident: &[u8]| $body:expr) => {
            pub fn take_input($data: &[u8]) {
                $body
            }
        };
        (|$text:ident: &str| $body:expr) => {
            pub fn take_input(data: &[u8]) {
                if let Ok($text) = std::str::from_utf8(data) {
                    $body
                }
            }
        };
    }
}

macro_rules! targets {
    ($($path:literal $name:ident)*) => {
        $(
            #[path = $path]
            pub mod $name;
        )*
    };
}

include!("targets.rs");
