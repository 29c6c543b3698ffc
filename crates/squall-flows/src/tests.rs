//! Shared helpers of the modules' tests.

use squall_apps::Program;
use squall_tcp::Tunables;
use squall_units::Nanos;

use crate::{Arrival, Ends, Template};

pub(crate) fn template(name: &str, arrival: Arrival) -> Template {
    let client = Program::client(name).send("ping").recv(4).build().expect("a good program");
    let server = Program::server(name).recv(4).send("pong").build().expect("a good program");
    Template {
        name: name.into(),
        pair: 0,
        clients: 0,
        servers: 0,
        port: 80,
        client,
        server,
        tls: None,
        proxy: None,
        http: None,
        http3: None,
        client_tunables: Tunables::default(),
        server_tunables: Tunables::default(),
        ends: Ends::Both,
        arrival,
        limit: None,
        start: Nanos::ZERO,
        duration: None,
        waits: false,
        shape: None,
        gone: false,
        joined: false,
    }
}
