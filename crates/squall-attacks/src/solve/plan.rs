//! Determines the sender and the protocol.

use squall_rules::{Application, ApplicationTest, Buffer, End, Inspection, Protocol, Rule};

/// The end that sends the inspected data.
pub(super) fn sender(rule: &Rule) -> End {
    if let Some(to) = rule.flow.to {
        return to.other();
    }
    let mut of = rule.inspections.iter().filter_map(|inspection| inspection.buffer.sent_by());
    if let Some(first) = of.next() {
        // If both ends send, the alert is raised on the response.
        return if of.any(|end| end == End::Server) { End::Server } else { first };
    }
    // A server usually has given ports, and a client has none.
    let (source, destination) = (&rule.header.source.ports, &rule.header.destination.ports);
    let few = |ports: &squall_rules::Numbers| {
        ports.ranges().map(|range| range.end() - range.start() + 1).sum::<u64>() < 5_000
    };
    match (few(source), few(destination)) {
        (true, false) => End::Server,
        _ => End::Client,
    }
}

/// The end that sends the buffer of this inspection.
pub(super) fn sender_of(rule: &Rule, inspection: &Inspection) -> End {
    inspection.buffer.sent_by().unwrap_or_else(|| sender(rule))
}

/// Whether the buffer is inspected in packets and streams of any protocol.
pub(super) fn is_payload(buffer: Buffer) -> bool {
    matches!(buffer, Buffer::Payload | Buffer::RawPayload)
}

pub(super) fn is_header(buffer: Buffer) -> bool {
    use Buffer::*;
    matches!(buffer, Ipv4Header | Ipv6Header | TcpHeader | UdpHeader | Icmp4Header | Icmp6Header)
}

/// Possible protocols, most likely first. Empty if plain octets suffice.
pub(super) fn applications(rule: &Rule) -> Vec<Application> {
    use Application::*;
    let http = |application: Application| if application == Http1 { Http } else { application };
    let named = rule
        .inspections
        .iter()
        .filter_map(|inspection| inspection.buffer.application())
        .chain(rule.application.iter().filter_map(|test| of_test(&test.is)));
    let mut all: Vec<Application> = vec![];
    if let Protocol::Application(application) = rule.header.protocol {
        all.push(http(application));
    }
    for application in named.map(http) {
        if !all.contains(&application) {
            all.push(application);
        }
    }
    if !all.is_empty() {
        // SMB also carries DCE/RPC, if the ports are those of SMB.
        if all == [DceRpc] && smb_ports(rule) {
            return vec![Smb, DceRpc];
        }
        if all.contains(&DceRpc) && all.contains(&Smb) {
            return vec![Smb];
        }
        return all.into_iter().take(2).collect();
    }
    let files =
        |buffer: Buffer| matches!(buffer, Buffer::FileData | Buffer::FileName | Buffer::FileMagic);
    let file_tests = rule.application.iter().any(|test| {
        use ApplicationTest::*;
        matches!(
            test.is,
            FileExtension { .. }
                | FileName { .. }
                | FileMagic { .. }
                | FileSize(_)
                | FileHash { .. }
        )
    });
    if !rule.inspections.iter().any(|inspection| files(inspection.buffer)) && !file_tests {
        return vec![];
    }
    let end = sender(rule);
    let ports = super::ends::sides(rule).1.ports.clone();
    // Only senders of mail can attach files.
    let mut carriers: Vec<(Application, bool)> = vec![
        (
            Http,
            ports.contains(80)
                || ports.contains(8080)
                || rule.services.iter().any(|service| service == "http"),
        ),
        (
            Smtp,
            end == End::Client
                && (ports.contains(25) || rule.services.iter().any(|service| service == "smtp")),
        ),
    ];
    if ports.contains(25) && !ports.contains(80) {
        carriers.reverse();
    }
    let all: Vec<Application> =
        carriers.iter().filter(|(_, fits)| *fits).map(|&(application, _)| application).collect();
    match (all.is_empty(), end) {
        (false, _) => all,
        (true, End::Server) => vec![Http],
        (true, End::Client) => vec![Http, Smtp],
    }
}

fn smb_ports(rule: &Rule) -> bool {
    let ports = &super::ends::sides(rule).1.ports;
    (ports.contains(445) || ports.contains(139)) && !ports.contains(135)
}

fn of_test(test: &ApplicationTest) -> Option<Application> {
    use ApplicationTest::*;
    Some(match test {
        Protocol { is: Some(application), negated: false } => *application,
        DnsOpcode { .. } | DnsRcode(_) | DnsType(_) => Application::Dns,
        TlsVersion { .. } | SslState { .. } | TlsCertCount(_) => Application::Tls,
        DceInterface { .. } | DceOpnum(_) => Application::DceRpc,
        SmbVersion(_) => Application::Smb,
        Krb5MessageType(_) => Application::Krb5,
        SnmpVersion(_) | SnmpPduType(_) => Application::Snmp,
        IkeExchangeType(_) => Application::Ike,
        RfbSecurityType(_) => Application::Rfb,
        MqttType(_) => Application::Mqtt,
        ModbusFunction(_) | ModbusUnit(_) => Application::Modbus,
        Dnp3Function(_) => Application::Dnp3,
        EnipCommand(_) | CipService(_) => Application::Enip,
        NfsProcedure(_) | NfsVersion(_) => Application::Nfs,
        WebSocketOpcode(_) | WebSocketMask(_) => Application::WebSocket,
        LdapRequestOperation(_) | LdapResponseOperation(_) => Application::Ldap,
        SipStatusCode(_) => Application::Sip,
        HttpStatusCode(_) | HttpHeaderCount { .. } => Application::Http,
        SshVersion(_) => Application::Ssh,
        FtpBounce => Application::Ftp,
        _ => return None,
    })
}
