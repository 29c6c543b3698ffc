//! Captures for display, and other formats imported as profiles.

use std::sync::Arc;

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Deserialize;
use squall_editor::{self as design, Import, Imported, OnePacket, PacketPage};

use super::refused;
use crate::{
    Refusal,
    api::{Asked, Body, Named, Operation, Routes},
    service::Service,
    threads::blocking,
};

pub fn routes() -> Routes {
    let doc = |summary| Operation::new("design", summary);
    Routes::new()
        .get(
            "/squall/v1/captures/{file}/packets",
            packets,
            doc("List the packets of a capture, a line each").query::<Page>().gives::<PacketPage>(),
        )
        .get(
            "/squall/v1/captures/{file}/packets/{n}",
            packet,
            doc("Get a packet of a capture, field by field").gives::<OnePacket>(),
        )
        .post(
            "/squall/v1/import",
            import,
            doc("Make a profile from a capture, octets, scapy text or an OTG configuration")
                .takes::<NewImport>()
                .gives::<Imported>(),
        )
}

#[derive(Deserialize, JsonSchema)]
struct Page {
    /// First packet, from 0; absent: 0.
    #[serde(default)]
    from: u64,
    /// Maximum number of packets, at most 1000; absent: 100.
    count: Option<usize>,
    /// Filter in tcpdump's syntax.
    #[serde(default)]
    filter: String,
}

async fn packets(
    State(service): State<Arc<Service>>,
    Named(file): Named<String>,
    Asked(page): Asked<Page>,
) -> Result<Json<PacketPage>, Refusal> {
    blocking(move || {
        let path = service.files.there(&file)?;
        let count = page.count.unwrap_or(100).min(1000);
        let found = service.captures.page(&path, &page.filter, page.from, count);
        let mut found = found.map_err(|error| service.files.without_paths(error.into()))?;
        found.fault = found.fault.map(|fault| service.files.without_root(&fault));
        Ok(Json(found))
    })
    .await
}

async fn packet(
    State(service): State<Arc<Service>>,
    Named((file, n)): Named<(String, String)>,
) -> Result<Json<OnePacket>, Refusal> {
    blocking(move || {
        let path = service.files.there(&file)?;
        let number = n.parse().map_err(|_| {
            Refusal::bad_request("bad_request", format!("{n:?} is not a packet number"))
        })?;
        let found = service.captures.packet(&path, number);
        Ok(Json(found.map_err(|error| service.files.without_paths(error.into()))?))
    })
    .await
}

#[derive(Deserialize, JsonSchema)]
struct NewImport {
    kind: ImportKind,
    /// Name of a capture on the daemon; for `pcap`.
    file: Option<String>,
    /// Text to import; for all other kinds.
    text: Option<String>,
    /// Address of the port of the streams; absent: `loop:0`.
    port: Option<String>,
    /// Maximum number of streams, 1 to 1000; absent: 100.
    limit: Option<usize>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum ImportKind {
    Pcap,
    /// Frames, separated by empty lines.
    Hex,
    /// One packet per line.
    Scapy,
    /// Not supported yet.
    Trex,
    /// A configuration of Open Traffic Generator as JSON.
    Otg,
}

/// Maximum size of text to import, in octets: the same limit as for a profile
/// ([`crate::budget::PROFILE`]).
const MOST_TEXT: u64 = 8 << 20;

async fn import(
    State(service): State<Arc<Service>>,
    Body(asked): Body<NewImport>,
) -> Result<Json<Imported>, Refusal> {
    blocking(move || {
        let bad = |message: &str| Refusal::bad_request("bad_request", message);
        let limit = asked.limit.unwrap_or(100).clamp(1, 1000);
        let path = asked.file.as_deref().map(|file| service.files.there(file)).transpose()?;
        let text = match (&path, asked.text, asked.kind) {
            (None, Some(text), _) => text,
            (Some(_), None, ImportKind::Pcap) => String::new(),
            (Some(path), None, _) => {
                if std::fs::metadata(path).map_or(0, |about| about.len()) > MOST_TEXT {
                    return Err(bad("the file is longer than 8 MiB"));
                }
                std::fs::read_to_string(path)
                    .map_err(|error| bad(&format!("the file is not text: {error}")))?
            }
            _ => return Err(super::one_of("file and text")),
        };
        let from = match (asked.kind, &path) {
            (ImportKind::Pcap, Some(path)) => Import::Pcap(path),
            (ImportKind::Pcap, None) => {
                return Err(bad(
                    "a capture can only be imported from a file\n  try PUT /squall/v1/files/NAME \
                     first",
                ));
            }
            (ImportKind::Hex, _) => Import::Hex(&text),
            (ImportKind::Scapy, _) => Import::Scapy(&text),
            (ImportKind::Otg, _) => Import::Otg(&text),
            (ImportKind::Trex, _) => {
                return Err(Refusal::bad_request(
                    "not_supported",
                    "cannot import a TRex profile: it is a Python program, which a daemon does not \
                     run\n  try squall import trex PROFILE -o streams.toml, and open that file",
                ));
            }
        };
        let found = design::import(from, asked.port.as_deref().unwrap_or("loop:0"), limit);
        let found = found
            .map_err(|problems| service.files.without_paths(refused("bad_import", &problems)))?;
        Ok(Json(found))
    })
    .await
}
