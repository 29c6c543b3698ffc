//! Converts the conversations in captures to templates.

use std::{collections::HashMap, path::Path};

use squall_apps::{
    Import, ImportError, ImportOptions, Imported, MessageRef, Program, Transport, import,
    import_where,
};
use squall_pcap::{CaptureReader, Packet};
use squall_port_linux::filter;
use squall_profile::{Arrival, FlowContent, Flows, Located, Pool, Profile, Spacing, Template};

use crate::Error;

/// The conversations in the capture at `path`.
///
/// # Errors
/// [`Error::Usage`] if the file is missing, is not a capture, is damaged, or exceeds a limit in
/// `options`; [`Error::Environment`] if it may not be read.
pub fn conversations(path: &Path, options: &ImportOptions) -> Result<Import, Error> {
    conversations_where(path, None, options)
}

/// As [`conversations`], but only with packets that match `expression`, in tcpdump's syntax.
///
/// # Errors
/// As [`conversations`], and [`Error::Usage`] if the filter is invalid.
pub fn conversations_where(
    path: &Path,
    expression: Option<&str>,
    options: &ImportOptions,
) -> Result<Import, Error> {
    let refused = |error: ImportError| match error {
        ImportError::Capture(error) => error.into(),
        other => Error::Usage(format!("{}: {other}", path.display())),
    };
    let mut reader = CaptureReader::open(path)?;
    let name =
        path.file_stem().map_or_else(|| "flow".into(), |stem| stem.to_string_lossy().into_owned());
    let Some(expression) = expression else {
        return import(&mut reader, &name, options).map_err(refused);
    };
    let mut by_link = HashMap::new();
    let mut wrong = None;
    let takes = |packet: &Packet<'_>| {
        let link = packet.link_type.0;
        let filter =
            by_link.entry(link).or_insert_with(|| match filter::compile_file(expression, link) {
                Ok(filter) => Some(filter),
                Err(error) => {
                    wrong.get_or_insert(Error::from(error));
                    None
                }
            });
        filter.as_ref().is_some_and(|filter| filter.program.run(packet.data, packet.wire_len) > 0)
    };
    let found = import_where(&mut reader, &name, options, takes).map_err(refused)?;
    wrong.map_or(Ok(found), Err)
}

/// A profile with one template per conversation, each with `cps` flows per second, between the two
/// ends of an in-memory link.
pub fn profile(import: &Import, cps: f64) -> Profile {
    let mut flows = Flows { clients: Some(0), servers: Some(1), ..Flows::default() };
    let mut pools = HashMap::new();
    for (number, conversation) in (1..).zip(&import.conversations) {
        let mut pool = |role: &str, address: std::net::IpAddr| {
            *pools.entry((role.to_owned(), address)).or_insert_with(|| {
                flows.pools.push(Pool {
                    name: format!("{role} {address}"),
                    addresses: vec![Located::from(address.to_string().as_str())],
                    ..Pool::default()
                });
                flows.pools.len() - 1
            })
        };
        let (clients, servers) =
            (pool("client", conversation.client_end.0), pool("server", conversation.server_end.0));
        flows.templates.push(Template {
            name: format!("conversation {number}"),
            clients,
            servers,
            listen: Some(conversation.server_end.1),
            transport: match conversation.client.transport {
                Transport::Tcp => squall_profile::Transport::Tcp,
                Transport::Udp => squall_profile::Transport::Udp,
            },
            content: content(conversation),
            arrival: Arrival::Cps { cps, spacing: Spacing::Constant },
            ..Template::default()
        });
    }
    let port = |name: &str| squall_profile::Port {
        name: name.into(),
        address: "loop:import".into(),
        at: Default::default(),
    };
    Profile {
        ports: vec![port("clients"), port("servers")],
        flows: Some(flows),
        ..Profile::default()
    }
}

/// The programs as text. Messages from the two sides have separate names.
fn content(conversation: &Imported) -> FlowContent {
    let mut messages = Vec::new();
    let mut lines = |side: &str, program: &Program| -> Vec<Located> {
        for (name, message) in &program.messages {
            messages.push((format!("{side}_{name}"), Located::from(message.to_string().as_str())));
        }
        let line = |instruction: &squall_apps::Instruction| {
            use squall_apps::Instruction::{Send, SendPacket};
            let mut renamed = instruction.clone();
            if let Send(MessageRef::Named(name)) | SendPacket(MessageRef::Named(name)) =
                &mut renamed
            {
                *name = format!("{side}_{name}");
            }
            Located::from(renamed.to_string().as_str())
        };
        program.instructions.iter().map(line).collect()
    };
    let client = lines("client", &conversation.client);
    let server = lines("server", &conversation.server);
    FlowContent::Programs { client, server, messages }
}
