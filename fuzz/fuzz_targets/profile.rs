//! Profiles in all three formats: no text causes a panic, and a profile that was parsed can be
//! written and parsed again.
#![no_main]

use std::{io, path::Path};

use libfuzzer_sys::fuzz_target;
use squall_profile::{Format, Profile};

/// Contents of the files that a profile refers to: some are small, some are missing. No file on
/// disk is read.
fn files(path: &Path) -> io::Result<String> {
    match path.extension() {
        Some(_) => Ok("1\n0x2 # two\n10.0.0.1\n\n::1\n".into()),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

fuzz_target!(|text: &str| {
    for format in [Format::Toml, Format::Yaml, Format::Json] {
        match Profile::parse_with(text, "fuzz", format, &files) {
            Ok(profile) => {
                let written = profile.to_toml();
                if let Err(mistakes) = Profile::parse_with(&written, "fuzz", Format::Toml, &files) {
                    panic!("{mistakes}\nin\n{written}");
                }
            }
            Err(mistakes) => assert!(!mistakes.to_string().is_empty()),
        }
    }
});
