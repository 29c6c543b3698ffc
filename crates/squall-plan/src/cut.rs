//! Determines how GSO frames are segmented, and whether they can be.

use squall_profile::{At, Diagnostic, Stream};
use squall_program::{Sizes, VarSpec};
use squall_units::{Cut, FCS_LEN, Segmentation};
use squall_wire::Frame;

use crate::PortLimits;

/// Maximum value of the length fields: total length in IPv4, payload length in IPv6.
const MOST_COUNTED: usize = 65_535;

/// Headers of a frame that can be segmented: Ethernet, any VLAN tags, IPv4 or IPv6, TCP or UDP.
struct Headers {
    ipv4: bool,
    udp: bool,
    network: usize,
    transport: usize,
    payload: usize,
}

impl Headers {
    fn of(frame: &Frame) -> Option<Self> {
        let mut layers = frame.layers.iter().filter(|l| l.len > 0 && l.offset < frame.payload);
        layers.next().filter(|l| l.header.name == "eth")?;
        let network = layers
            .find(|l| l.header.name != "vlan")
            .filter(|l| matches!(l.header.name, "ipv4" | "ipv6"))?;
        let transport = layers.next().filter(|l| matches!(l.header.name, "tcp" | "udp"))?;
        layers.next().is_none().then_some(Self {
            ipv4: network.header.name == "ipv4",
            udp: transport.header.name == "udp",
            network: network.offset,
            transport: transport.offset,
            payload: frame.payload,
        })
    }

    /// Offsets of the two-octet fields that segmentation rewrites.
    fn written(&self) -> Vec<usize> {
        let mut places = vec![self.network + if self.ipv4 { 2 } else { 4 }];
        places.extend(self.ipv4.then_some(self.network + 10));
        places.push(self.transport + if self.udp { 6 } else { 16 });
        places.extend(self.udp.then_some(self.transport + 4));
        places
    }

    /// Offsets of the octets with the type or length of a header, which must not vary.
    fn structure(&self) -> [usize; 4] {
        let next = self.network + if self.ipv4 { 9 } else { 6 };
        [12, self.network, next, self.transport + if self.udp { 4 } else { 12 }]
    }

    fn kind(&self) -> &'static str {
        if self.udp { "UDP" } else { "TCP" }
    }
}

/// The frame length of a stream without a size in the profile: as many whole segments as fit,
/// without FCS.
pub(crate) fn natural_len(frame: &Frame, segment: u32, limits: &PortLimits) -> Option<usize> {
    let headers = Headers::of(frame)?;
    let most = most_segments(&headers, limits).unwrap_or(u32::MAX) as usize;
    let room = MOST_COUNTED - (headers.payload - headers.network);
    let segments = (room / segment as usize).clamp(1, most.max(1));
    Some(headers.payload + (segments * segment as usize).min(room))
}

/// Determines how the frames of `stream` are segmented.
///
/// # Errors
///
/// The frames cannot be segmented, or not on this port.
pub(crate) fn cut(
    stream: &Stream,
    frame: &Frame,
    sizes: &Sizes,
    vars: &[VarSpec],
    limits: &PortLimits,
    port: &str,
) -> Result<Cut, Diagnostic> {
    let Some(segment) = stream.segment else { return Ok(Cut::WHOLE) };
    let problem = |at: At, message: &str, hint: &str| {
        Err(Diagnostic::at(
            at,
            format!("stream {:?}: segment = {segment}: {message}", stream.name),
            vec![hint.into()],
        ))
    };
    let at = stream.segment_at;
    if limits.segmentation == Segmentation::Nowhere {
        let hint = "try af_packet:IFACE, where the kernel or the NIC cuts the frames, or a port \
                    where Squall does";
        return problem(at, &format!("port {port} makes its own frames and cannot cut them"), hint);
    }
    if stream.latency {
        let hint = "try latency = false, or a second, signed stream without segment";
        return problem(
            at,
            "frames that are cut cannot have the signature of latency = true",
            hint,
        );
    }
    let Some(headers) = Headers::of(frame).filter(|h| h.payload <= 255) else {
        let message = format!("{} cannot be cut", frame.names());
        return problem(
            at,
            &message,
            "expected eth, any vlan, ipv4 or ipv6, tcp or udp, and payload",
        );
    };
    let Some(len) = sizes.only() else {
        return problem(
            stream.size_at,
            "frames that are cut must have one size",
            "try one size, or one stream per size",
        );
    };
    let kept = |at: usize| {
        frame.lengths.iter().any(|l| l.at == at)
            || frame
                .checksums
                .iter()
                .any(|c| c.at == at && c.to.is_none_or(|to| to <= headers.transport))
    };
    if frame.trailer > 0 || !headers.written().into_iter().all(kept) {
        let hint = "try the packet without lengths, checksums and padding after it";
        return problem(
            stream.packet_at,
            "cutting sets correct lengths and checksums, but the packet has its own",
            hint,
        );
    }
    let touches = |v: &VarSpec, at: usize, octets: usize| {
        v.bit < (at + octets) * 8 && at * 8 < v.bit + v.bits
    };
    let touched = |v: &VarSpec| {
        headers.written().into_iter().any(|at| touches(v, at, 2))
            || headers.structure().into_iter().any(|at| touches(v, at, 1))
    };
    if let Some(i) = vars.iter().position(touched) {
        return problem(
            stream.vary[i].at,
            "a length, checksum or header type cannot change from frame to frame",
            "",
        );
    }
    let cut = Cut {
        size: segment as u16,
        transport: headers.transport as u8,
        payload: headers.payload as u8,
    };
    let longest = u32::from(cut.payload) + segment.min(len - u32::from(cut.payload));
    if longest > limits.max_frame {
        let message =
            format!("its frames of {} octets are longer than port {port} takes", longest + FCS_LEN);
        let most = limits.max_frame.saturating_sub(cut.payload.into());
        return problem(
            at,
            &message,
            &format!("try segment = {most}, or a larger MTU on the interface"),
        );
    }
    if let Segmentation::Port(offload) = limits.segmentation {
        if len > offload.max_frame {
            let most = offload.max_frame + FCS_LEN;
            let message =
                format!("a frame of {} octets is longer than port {port} can cut", len + FCS_LEN);
            return problem(stream.size_at, &message, &format!("try size = {most}, or less"));
        }
        let most = most_segments(&headers, limits).unwrap_or(u32::MAX);
        if most == 0 {
            let message = format!("port {port} does not cut {}", headers.kind());
            return problem(at, &message, "try TCP, or the port without tso=1: then Squall cuts");
        }
        if cut.segments(len) > most {
            let kind = headers.kind();
            let message = format!(
                "port {port} cuts {kind} into {most} frames at most, not {}",
                cut.segments(len)
            );
            let fits = u32::from(cut.payload) + most * segment + FCS_LEN;
            return problem(
                stream.size_at,
                &message,
                &format!("try size = {fits}, or larger segments"),
            );
        }
    }
    Ok(cut)
}

fn most_segments(headers: &Headers, limits: &PortLimits) -> Option<u32> {
    match limits.segmentation {
        Segmentation::Port(offload) => Some(if headers.udp { offload.udp } else { offload.tcp }),
        Segmentation::Engine | Segmentation::Nowhere => None,
    }
}
