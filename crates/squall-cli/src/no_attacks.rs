//! A substitute for `attacks` in builds without that feature. Has no commands.

use std::{convert::Infallible, process::ExitCode};

use squall::Error;

pub type Command = Infallible;

pub fn run(command: &Command) -> Result<ExitCode, Error> {
    match *command {}
}
