//! Commands that need the feature `server`: the daemon, and clients of a daemon.

mod daemon;
mod logging;
mod routers;
mod serve;
mod show;
mod top;

use std::process::ExitCode;

use squall::Error;

pub use routers::{
    OrderArgs, ShowArgs as ShowRoutersArgs, order as order_routers, show as show_routers,
};
pub use show::{Args as ShowArgs, show};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Serve(Box<serve::Args>),
    Top(top::Args),
}

pub fn run(command: &Command) -> Result<ExitCode, Error> {
    match command {
        Command::Serve(args) => serve::serve(args),
        Command::Top(args) => top::top(args),
    }
}

/// Whether the command continues after a panic. A daemon does, and reports the panic to the client
/// of the request.
pub fn lives_on(command: &Command) -> bool {
    matches!(command, Command::Serve(_))
}
