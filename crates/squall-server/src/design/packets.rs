//! Headers, packets and their variable fields.

use std::{io, sync::Arc};

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_editor::{self as design, HeaderInfo, PacketText, PacketView, VariationsView};

use super::{one_of, refused};
use crate::{
    Refusal,
    api::{Body, Operation, Routes},
    service::Service,
    threads::blocking,
};

pub fn routes() -> Routes {
    let doc = |summary| Operation::new("design", summary);
    Routes::new()
        .get(
            "/squall/v1/headers",
            headers,
            doc("List the headers and payloads of packets, field by field").gives::<Headers>(),
        )
        .post(
            "/squall/v1/packets/parse",
            parse,
            doc("Describe a packet and its frame, field by field; the reply includes errors in it")
                .takes::<Parse>()
                .gives::<PacketView>(),
        )
        .post(
            "/squall/v1/packets/variations",
            variations,
            doc("Get the first frames of a stream whose fields vary")
                .takes::<Vary>()
                .gives::<VariationsView>(),
        )
}

#[derive(Serialize, JsonSchema)]
struct Headers {
    headers: Vec<HeaderInfo>,
}

async fn headers() -> Json<Headers> {
    Json(Headers { headers: design::headers() })
}

/// One of `packet`, `hex`, `scapy`.
#[derive(Deserialize, JsonSchema)]
struct Parse {
    /// `eth/ipv4/udp`
    packet: Option<String>,
    /// Octets without FCS, or a hex dump of tcpdump or Wireshark.
    hex: Option<String>,
    /// `Ether()/IP()/UDP()`, or the output of `repr()` or `command()`.
    scapy: Option<String>,
    /// Octets with FCS; absent: the length of the packet, at least 64.
    size: Option<usize>,
}

async fn parse(
    State(service): State<Arc<Service>>,
    Body(asked): Body<Parse>,
) -> Result<Json<PacketView>, Refusal> {
    blocking(move || {
        let text = match (&asked.packet, &asked.hex, &asked.scapy) {
            (Some(text), None, None) => PacketText::Layers(text),
            (None, Some(text), None) => PacketText::Hex(text),
            (None, None, Some(text)) => PacketText::Scapy(text),
            _ => return Err(one_of("packet, hex and scapy")),
        };
        Ok(Json(design::packet(text, asked.size, &|path| payload(&service, path))))
    })
    .await
}

/// Reads a file named in the text of a packet.
fn payload(service: &Service, path: &str) -> io::Result<Vec<u8>> {
    let path = service.files.there(path).map_err(|refusal| io::Error::other(refusal.message))?;
    // No payload is longer than 64 KiB. Read one more octet, so that a longer file is refused as
    // too long.
    let mut octets = Vec::new();
    io::Read::read_to_end(
        &mut io::Read::take(std::fs::File::open(path)?, (1 << 16) + 1),
        &mut octets,
    )?;
    Ok(octets)
}

/// Maximum number of entries of `vary`: more than a packet has fields.
const MOST_VARIED: usize = 1000;

#[derive(Deserialize, JsonSchema)]
struct Vary {
    packet: String,
    /// Entries as in `vary` of a stream in a profile.
    vary: Vec<serde_json::Value>,
    /// Octets with FCS, or any size distribution of profiles.
    size: Option<serde_json::Value>,
    /// Number of frames, 1 to 1000; absent: 16.
    count: Option<usize>,
    /// Seed of the profile; absent: 1.
    seed: Option<u64>,
}

async fn variations(
    State(service): State<Arc<Service>>,
    Body(asked): Body<Vary>,
) -> Result<Json<VariationsView>, Refusal> {
    blocking(move || {
        let count = asked.count.unwrap_or(16);
        if !(1..=1000).contains(&count) {
            return Err(Refusal::bad_request(
                "bad_request",
                format!("count = {count}: expected 1 to 1000"),
            ));
        }
        if asked.vary.len() > MOST_VARIED {
            return Err(Refusal::bad_request(
                "bad_request",
                format!("vary: expected at most {MOST_VARIED} entries"),
            ));
        }
        let files = super::profiles::files(&service);
        let varied = design::Varied {
            packet: &asked.packet,
            vary: &asked.vary,
            size: asked.size.as_ref(),
            seed: asked.seed,
        };
        let view = design::variations(varied, count, files.around())
            .map_err(|problems| refused("bad_packet", &problems))?;
        Ok(Json(view))
    })
    .await
}
