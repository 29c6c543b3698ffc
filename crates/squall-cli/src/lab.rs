//! `squall lab`: a network namespace with two interfaces that are each other's peer.

use std::process::ExitCode;

use clap::Subcommand;
use squall::{
    Error,
    lab::{INTERFACES, Lab, LabError, LabOptions},
};

use crate::{
    output,
    table::{Side, table},
};

/// Create a private network for experiments, without root: two interfaces, peers of each other
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall lab up
  squall lab exec -- squall ports
  squall lab exec -- squall send --port veth-a --to veth-b --packet eth/ipv4/udp --rate 10kpps -d \
                        5s --latency
  squall lab exec -- sh          # a shell in the lab: tcpdump -i veth-b, ip link ...
  squall lab down")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a lab that stays until it is removed
    Up {
        /// Name of the lab
        #[arg(default_value = "lab")]
        name: String,
        /// MTU of the interfaces: the largest IP packet, in octets
        #[arg(long, default_value_t = LabOptions::default().mtu, value_parser = clap::value_parser!(u32).range(68..=65_535))]
        mtu: u32,
        /// Number of queues of each interface, in each direction
        #[arg(long, default_value_t = LabOptions::default().queues, value_parser = clap::value_parser!(u32).range(1..=64))]
        queues: u32,
    },
    /// Run a command in a lab and pass on its exit status
    Exec {
        /// Name of the lab
        #[arg(default_value = "lab")]
        name: String,
        /// Command to run, with its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<std::ffi::OsString>,
    },
    /// Remove a lab
    Down {
        /// Name of the lab
        #[arg(default_value = "lab")]
        name: String,
    },
    /// List the labs that are up
    List,
}

pub fn lab(args: &Args) -> Result<ExitCode, Error> {
    match &args.action {
        Action::Up { name, mtu, queues } => {
            let lab = Lab::up(name, &LabOptions { mtu: *mtu, queues: *queues }).map_err(error)?;
            let [a, b] = INTERFACES;
            // That of the default name is the lab, without a name to remember.
            let (lab, named) = match lab.name.as_str() {
                "lab" => ("the lab".to_owned(), String::new()),
                name => (format!("lab {name:?}"), format!(" {name}")),
            };
            output::print(&format!(
                "{lab} is up: {a} and {b} are each other's peer\n  use it:     squall lab \
                 exec{named} -- squall ports\n  remove it:  squall lab down{named}\n"
            ));
        }
        Action::Exec { name, command } => return Err(error(Lab::exec(name, command))),
        Action::Down { name } => Lab::down(name).map_err(error)?,
        Action::List => {
            let labs = Lab::list().map_err(error)?;
            let rows: Vec<_> =
                labs.iter().map(|lab| vec![lab.name.clone(), lab.pid.to_string()]).collect();
            output::print(&table(&[("LAB", Side::Left), ("PROCESS", Side::Left)], &rows));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn error(error: LabError) -> Error {
    match &error {
        LabError::Name { .. } => Error::Usage(error.to_string()),
        LabError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::Usage(error.to_string())
        }
        _ => Error::Environment(error.to_string()),
    }
}
