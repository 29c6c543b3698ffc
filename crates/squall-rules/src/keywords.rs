//! The table of all rule options.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::options::{application as app, bytes, content, meta, packet, state};
use crate::rule::{Parsed, RuleBuilder};
use crate::values::Names;
use crate::{ApplicationTest as A, Buffer, EngineVersion, Numbers, PacketTest as P, Transform};

/// A rule option.
#[derive(Clone, Copy)]
pub struct Keyword {
    pub name: &'static str,
    /// Engines that load rules with this option: `2` Snort 2, `3` Snort 3, `S` Suricata 7 and 8,
    /// `7` or `8` only that version of Suricata, `9` none of these (later or development versions).
    pub engines: &'static str,
    pub(crate) what: What,
}

/// How this crate handles an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeywordReading {
    /// The option is parsed into [`crate::Rule`].
    Read,
    /// The option does not affect which traffic matches.
    Ignored,
    /// A rule with the option becomes a problem.
    Unsupported,
}

impl Keyword {
    /// Whether this engine loads rules with the option.
    pub fn is_of(&self, engine: EngineVersion) -> bool {
        let of = match engine {
            EngineVersion::Snort2 => ['2', '2'],
            EngineVersion::Snort3 => ['3', '3'],
            EngineVersion::Suricata7 => ['7', 'S'],
            EngineVersion::Suricata8 => ['8', 'S'],
        };
        self.engines.contains(of)
    }

    /// Whether no version of Snort has the option.
    pub(crate) fn is_suricatas_only(&self) -> bool {
        !self.engines.contains(['2', '3'])
    }

    pub fn reading(&self) -> KeywordReading {
        match self.what {
            What::Ignored => KeywordReading::Ignored,
            What::Unsupported(_) => KeywordReading::Unsupported,
            _ => KeywordReading::Read,
        }
    }

    /// The buffer that the option selects, if it does nothing else.
    pub fn buffer(&self) -> Option<Buffer> {
        match self.what {
            What::Sticky(buffer) | What::Modifier(buffer) => Some(buffer),
            _ => None,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum What {
    Ignored,
    /// The option is not supported, for this reason.
    Unsupported(&'static str),
    /// Selects the buffer of the contents after it.
    Sticky(Buffer),
    /// Selects the buffer of the content before it. In Snort 3 it selects a sticky buffer.
    Modifier(Buffer),
    /// Tests a number. The maximum number, the names of values, and the constructor of the test.
    Application(u64, Names, fn(Numbers, &'static str) -> A),
    Packet(u64, Names, fn(Numbers, &'static str) -> P),
    Own(fn(&mut RuleBuilder, &str) -> Parsed),
}

/// All keywords, sorted by name.
pub fn all() -> &'static [Keyword] {
    static SORTED: LazyLock<Vec<Keyword>> = LazyLock::new(|| {
        let mut all = table_and_buffers();
        all.sort_by_key(|keyword| keyword.name);
        all
    });
    &SORTED
}

pub(crate) fn find(name: &str) -> Option<&'static Keyword> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Keyword>> =
        LazyLock::new(|| all().iter().map(|keyword| (keyword.name, keyword)).collect());
    BY_NAME.get(name).copied()
}

/// The keyword most similar to `name`, if any is similar enough.
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    squall_units::nearest(name, all().iter().map(|keyword| keyword.name))
}

const U8: u64 = u8::MAX as u64;
const U16: u64 = u16::MAX as u64;
const U32: u64 = u32::MAX as u64;
const U64: u64 = u64::MAX;

fn other(numbers: Numbers, keyword: &'static str) -> A {
    A::Other { keyword, numbers }
}

fn other_packet(numbers: Numbers, keyword: &'static str) -> P {
    P::Other { keyword, numbers }
}

const fn keyword(name: &'static str, engines: &'static str, what: What) -> Keyword {
    Keyword { name, engines, what }
}

/// All keywords, except for buffers under their own names, which [`table_and_buffers`] adds.
#[rustfmt::skip]
static TABLE: &[Keyword] = {
    use Buffer::*;
    use What::{Application, Ignored, Modifier, Own, Packet, Sticky, Unsupported};
    &[
        // Identity and description of a rule.
        keyword("msg", "23S", Own(meta::msg)),
        keyword("sid", "23S", Own(meta::sid)),
        keyword("gid", "23S", Own(meta::gid)),
        keyword("rev", "23S", Own(meta::rev)),
        keyword("classtype", "23S", Own(meta::classtype)),
        keyword("priority", "23S", Own(meta::priority)),
        keyword("reference", "23S", Own(meta::reference)),
        keyword("metadata", "23S", Own(meta::metadata)),
        keyword("service", "3", Own(meta::service)),
        keyword("noalert", "S", Own(meta::noalert)),
        keyword("alert", "S", Ignored),
        keyword("rem", "3", Ignored),
        keyword("target", "S", Ignored),
        keyword("tag", "23S", Ignored),
        keyword("logto", "2", Ignored),
        keyword("session", "2", Ignored),
        keyword("resp", "2", Ignored),
        keyword("react", "2", Ignored),
        keyword("replace", "23S", Ignored),
        keyword("bypass", "S", Ignored),
        keyword("prefilter", "S", Ignored),
        keyword("nfq_set_mark", "S", Ignored),
        keyword("filestore", "S", Ignored),
        keyword("tls.store", "S", Ignored),
        keyword("tls_store", "S", Ignored),
        keyword("requires", "S", Own(meta::requires)),
        keyword("config", "S", Ignored),
        keyword("template2", "S", Unsupported("an example in Suricata's source")),
        keyword("rawbytes", "2S", Own(content::rawbytes)),
        keyword("file_meta", "3", Ignored),
        keyword("soid", "3", Ignored),
        keyword("firewall", "8", Ignored),

        // Contents and expressions.
        keyword("content", "23S", Own(content::content)),
        keyword("uricontent", "2S", Own(content::uricontent)),
        keyword("nocase", "2S", Own(content::nocase)),
        keyword("offset", "2S", Own(content::offset)),
        keyword("depth", "2S", Own(content::depth)),
        keyword("distance", "2S", Own(content::distance)),
        keyword("within", "2S", Own(content::within)),
        keyword("startswith", "S", Own(content::startswith)),
        keyword("endswith", "S", Own(content::endswith)),
        keyword("fast_pattern", "2S", Own(content::fast_pattern)),
        keyword("pcre", "23S", Own(content::pcre)),
        keyword("regex", "3", Own(content::pcre)),
        keyword("isdataat", "23S", Own(content::isdataat)),
        keyword("bsize", "S", Own(content::bsize)),
        keyword("bufferlen", "3", Own(content::bufferlen)),
        keyword("urilen", "2S", Own(content::urilen)),
        keyword("absent", "8", Own(content::absent)),
        keyword("entropy", "8", Own(content::entropy)),
        keyword("byte_test", "23S", Own(bytes::byte_test)),
        keyword("byte_jump", "23S", Own(bytes::byte_jump)),
        keyword("byte_extract", "23S", Own(bytes::byte_extract)),
        keyword("byte_math", "23S", Own(bytes::byte_math)),
        keyword("base64_decode", "23S", Own(bytes::base64_decode)),
        keyword("asn1", "2S", Own(bytes::asn1)),
        keyword("dataset", "S", Own(content::dataset)),
        keyword("datarep", "S", Unsupported("a reputation list outside the rule")),
        keyword("sd_pattern", "23", Unsupported("Snort's search for personal data")),
        keyword("cvs", "23", Unsupported("Snort's CVS check")),
        keyword("lua", "S", Unsupported("a script")),
        keyword("luajit", "7", Unsupported("a script")),
        keyword("so", "3", Unsupported("a shared object rule")),
        keyword("activates", "2", Unsupported("a rule that activates others")),
        keyword("activated_by", "2", Unsupported("a rule that activates others")),
        keyword("count", "2", Unsupported("a rule that activates others")),

        // Transforms.
        keyword("compress_whitespace", "S", Own(|b, _| b.transform(Transform::CompressWhitespace))),
        keyword("strip_whitespace", "S", Own(|b, _| b.transform(Transform::StripWhitespace))),
        keyword("to_lowercase", "S", Own(|b, _| b.transform(Transform::ToLowercase))),
        keyword("to_uppercase", "S", Own(|b, _| b.transform(Transform::ToUppercase))),
        keyword("to_md5", "S", Own(|b, _| b.transform(Transform::ToMd5))),
        keyword("to_sha1", "S", Own(|b, _| b.transform(Transform::ToSha1))),
        keyword("to_sha256", "S", Own(|b, _| b.transform(Transform::ToSha256))),
        keyword("url_decode", "S", Own(|b, _| b.transform(Transform::UrlDecode))),
        keyword("dotprefix", "S", Own(|b, _| b.transform(Transform::DotPrefix))),
        keyword("header_lowercase", "S", Own(|b, _| b.transform(Transform::HeaderLowercase))),
        keyword("strip_pseudo_headers", "S", Own(|b, _| b.transform(Transform::StripPseudoHeaders))),
        keyword("domain", "8", Own(|b, _| b.transform(Transform::Domain))),
        keyword("tld", "8", Own(|b, _| b.transform(Transform::Tld))),
        keyword("gunzip", "8", Own(|b, _| b.transform(Transform::Gunzip))),
        keyword("zlib_deflate", "8", Own(|b, _| b.transform(Transform::ZlibDeflate))),
        keyword("xor", "S", Own(content::xor)),
        keyword("from_base64", "8", Own(content::from_base64)),
        keyword("pcrexform", "S", Own(content::pcrexform)),
        keyword("luaxform", "8", Own(content::luaxform)),
        keyword("subslice", "9", Unsupported("a transform of Suricata 9")),

        // Flow state, bits and counts.
        keyword("flow", "23S", Own(state::flow)),
        keyword("flowbits", "23S", Own(state::flowbits)),
        keyword("xbits", "S", Own(state::xbits)),
        keyword("hostbits", "S", Own(state::hostbits)),
        keyword("flowint", "S", Own(state::flowint)),
        keyword("threshold", "2S", Own(state::threshold)),
        keyword("detection_filter", "23S", Own(state::detection_filter)),
        keyword("stream_size", "23S", Own(state::stream_size)),
        keyword("stream_reassemble", "23", Ignored),
        keyword("flowvar", "S", Unsupported("a flow variable that a script or an expression sets")),
        keyword("pktvar", "S", Unsupported("a packet variable that a script or an expression sets")),
        keyword("flow.age", "S", Packet(U32, &[], |n, _| P::FlowAge(n))),
        keyword("flow.pkts", "8", Own(state::flow_packets)),
        keyword("flow.bytes", "8", Own(state::flow_octets)),
        keyword("flow.pkts_toserver", "8", Packet(U32, &[], |count, _| P::FlowPackets { of: Some(crate::End::Client), count })),
        keyword("flow.pkts_toclient", "8", Packet(U32, &[], |count, _| P::FlowPackets { of: Some(crate::End::Server), count })),
        keyword("flow.bytes_toserver", "8", Packet(U64, &[], |count, _| P::FlowOctets { of: Some(crate::End::Client), count })),
        keyword("flow.bytes_toclient", "8", Packet(U64, &[], |count, _| P::FlowOctets { of: Some(crate::End::Server), count })),
        keyword("flow.rate", "9", Unsupported("the octets per second of a flow")),
        keyword("flow.elephant", "8", Unsupported("the counters of a flow")),
        keyword("iprep", "S", Unsupported("a reputation list outside the rule")),
        keyword("geoip", "S", Unsupported("a country database outside the rule")),

        // Packet headers.
        keyword("flags", "23S", Own(packet::flags)),
        keyword("tcp.flags", "S", Own(packet::flags)),
        keyword("fragbits", "23S", Own(packet::fragbits)),
        keyword("fragoffset", "23S", Packet(U16, &[], |n, _| P::FragmentOffset(n))),
        keyword("ipopts", "23S", Own(packet::ipopts)),
        keyword("ip_proto", "23S", Own(packet::ip_proto)),
        keyword("sameip", "2S", Own(|b, _| { b.packet(P::SameAddress); Ok(()) })),
        keyword("rpc", "23S", Own(packet::rpc)),
        keyword("ttl", "23S", Packet(U8, &[], |n, _| P::Ttl(n))),
        keyword("tos", "23S", Packet(U8, &[], |n, _| P::Tos(n))),
        keyword("id", "23S", Packet(U16, &[], |n, _| P::Id(n))),
        keyword("seq", "23S", Packet(U32, &[], |n, _| P::Sequence(n))),
        keyword("ack", "23S", Packet(U32, &[], |n, _| P::Acknowledgment(n))),
        keyword("tcp.seq", "S", Packet(U32, &[], |n, _| P::Sequence(n))),
        keyword("tcp.ack", "S", Packet(U32, &[], |n, _| P::Acknowledgment(n))),
        keyword("window", "23S", Packet(U16, &[], |n, _| P::Window(n))),
        keyword("tcp.window", "S", Packet(U16, &[], |n, _| P::Window(n))),
        keyword("tcp.mss", "S", Packet(U16, &[], |n, _| P::Mss(n))),
        keyword("tcp.wscale", "8", Packet(U8, &[], |n, _| P::WindowScale(n))),
        keyword("dsize", "23S", Packet(U16, &[], |n, _| P::Size(n))),
        keyword("itype", "23S", Packet(U8, &[], |n, _| P::IcmpType(n))),
        keyword("icode", "23S", Packet(U8, &[], |n, _| P::IcmpCode(n))),
        keyword("icmp_id", "23S", Packet(U16, &[], |n, _| P::IcmpId(n))),
        keyword("icmp_seq", "23S", Packet(U16, &[], |n, _| P::IcmpSequence(n))),
        keyword("icmpv6.mtu", "S", Packet(U32, &[], |n, _| P::Icmp6Mtu(n))),
        keyword("l3_proto", "S", Own(packet::l3_proto)),
        keyword("vlan.id", "8", Packet(4095, &[], other_packet)),
        keyword("vlan.layers", "8", Packet(3, &[], other_packet)),
        keyword("ipv4-csum", "S", Packet(1, packet::VALIDITY, other_packet)),
        keyword("tcpv4-csum", "S", Packet(1, packet::VALIDITY, other_packet)),
        keyword("tcpv6-csum", "S", Packet(1, packet::VALIDITY, other_packet)),
        keyword("udpv4-csum", "S", Packet(1, packet::VALIDITY, other_packet)),
        keyword("udpv6-csum", "S", Packet(1, packet::VALIDITY, other_packet)),
        keyword("icmpv4-csum", "S", Packet(1, packet::VALIDITY, other_packet)),
        keyword("icmpv6-csum", "S", Packet(1, packet::VALIDITY, other_packet)),
        keyword("igmp.type", "9", Packet(U8, &[], other_packet)),
        keyword("igmp.hdr", "9", Unsupported("the header of IGMP")),
        keyword("ether.hdr", "9", Unsupported("the header of Ethernet")),
        keyword("decode-event", "S", Own(|b, v| app::event(b, "", v))),
        keyword("engine-event", "S", Own(|b, v| app::event(b, "", v))),
        keyword("stream-event", "S", Own(|b, v| app::event(b, "stream.", v))),
        keyword("app-layer-event", "S", Own(|b, v| app::event(b, "", v))),
        keyword("app-layer-protocol", "S", Own(app::protocol)),
        keyword("app-layer-state", "8", Unsupported("the state of the application layer's parser")),
        keyword("ndpi-protocol", "8", Unsupported("an optional library of Suricata")),
        keyword("ndpi-risk", "8", Unsupported("an optional library of Suricata")),
        keyword("appids", "3", Unsupported("Snort's application detection")),
        keyword("ssl_state", "23S", Own(app::ssl_state)),
        keyword("ssl_version", "23S", Own(app::ssl_version)),

        // Buffers that have further names or need their own parser. All others are added from the
        // table of buffers.
        keyword("file_data", "23S", Sticky(FileData)),
        keyword("js_data", "3", Sticky(FileData)),
        keyword("vba_data", "3", Unsupported("programs in documents")),
        keyword("pkt_data", "23S", Own(|b, _| { b.unstick(); Ok(()) })),
        keyword("raw_data", "3", Sticky(RawPayload)),
        keyword("base64_data", "23S", Sticky(Base64Data)),
        keyword("frame", "S", Unsupported("a frame of a protocol, in Suricata's sense")),
        keyword("http_uri", "23S", Modifier(HttpUri)),
        keyword("http_raw_uri", "23S", Modifier(HttpRawUri)),
        keyword("http_method", "23S", Modifier(HttpMethod)),
        keyword("http_header", "23S", Modifier(HttpHeader)),
        keyword("http_raw_header", "23S", Modifier(HttpRawHeader)),
        keyword("http_cookie", "23S", Modifier(HttpCookie)),
        keyword("http_raw_cookie", "23", Modifier(HttpCookie)),
        keyword("http_client_body", "23S", Modifier(HttpRequestBody)),
        keyword("http_server_body", "S", Modifier(HttpResponseBody)),
        keyword("http_stat_code", "23S", Modifier(HttpStatusCode)),
        keyword("http_stat_msg", "23S", Modifier(HttpStatusMessage)),
        keyword("http_user_agent", "S", Modifier(HttpUserAgent)),
        keyword("http_host", "S", Modifier(HttpHost)),
        keyword("http_raw_host", "S", Modifier(HttpRawHost)),
        keyword("http_encode", "2", Unsupported("the encoding of a header or URI")),
        keyword("http_raw_body", "3", Own(content::http_raw_body)),
        keyword("http_version", "3", Sticky(HttpProtocol)),
        keyword("http_raw_request", "3", Sticky(HttpRequestLine)),
        keyword("http_raw_status", "3", Sticky(HttpResponseLine)),
        keyword("http_raw_trailer", "3", Sticky(HttpTrailer)),
        keyword("http_trailer", "3", Sticky(HttpTrailer)),
        keyword("http_true_ip", "3", Sticky(HttpTrueIp)),
        keyword("http_param", "3", Own(content::http_param)),
        keyword("http_version_match", "3", Unsupported("a list of HTTP versions: write http_version and a content")),
        keyword("http_header_test", "3", Unsupported("a number in a header: write http_header and a byte_test")),
        keyword("http_trailer_test", "3", Unsupported("a number in a trailer")),
        keyword("http_num_headers", "3", Own(app::http_num_headers)),
        keyword("http_num_trailers", "3", Application(U16, &[], other)),
        keyword("http_num_cookies", "3", Application(U16, &[], other)),
        keyword("http_max_header_line", "3", Application(U16, &[], other)),
        keyword("http_max_trailer_line", "3", Application(U16, &[], other)),
        keyword("http_protocol", "S", Sticky(HttpProtocol)),
        keyword("http_request_line", "S", Sticky(HttpRequestLine)),
        keyword("http_response_line", "S", Sticky(HttpResponseLine)),
        keyword("http_header_names", "S", Sticky(HttpHeaderNames)),
        keyword("http_request_header", "S", Sticky(HttpRequestHeader)),
        keyword("http_response_header", "S", Sticky(HttpResponseHeader)),
        keyword("http_referer", "S", Sticky(HttpReferer)),
        keyword("http_accept", "S", Sticky(HttpAccept)),
        keyword("http_accept_enc", "S", Sticky(HttpAcceptEncoding)),
        keyword("http_accept_lang", "S", Sticky(HttpAcceptLanguage)),
        keyword("http_connection", "S", Sticky(HttpConnection)),
        keyword("http_content_type", "S", Sticky(HttpContentType)),
        keyword("http_content_len", "S", Sticky(HttpContentLength)),
        keyword("http_start", "S", Sticky(HttpStart)),
        keyword("http_location", "9", Sticky(HttpLocation)),
        keyword("http_server", "9", Sticky(HttpServer)),
        keyword("http_request_body", "S", Sticky(HttpRequestBody)),
        keyword("http_response_body", "S", Sticky(HttpResponseBody)),
        keyword("http2.frametype", "S", Application(U8, app::HTTP2_FRAMES, other)),
        keyword("http2.errorcode", "S", Application(U32, app::HTTP2_ERRORS, other)),
        keyword("http2.priority", "S", Application(U8, &[], other)),
        keyword("http2.window", "S", Application(U32, &[], other)),
        keyword("http2.size_update", "S", Application(U64, &[], other)),
        keyword("http2.header", "S", Sticky(HttpRequestHeader)),
        keyword("http2.settings", "S", Unsupported("a setting of HTTP/2")),

        keyword("dns_query", "S", Sticky(DnsQuery)),
        keyword("dns.query.name", "8", Sticky(DnsQueryName)),
        keyword("dns.answer.name", "8", Sticky(DnsAnswerName)),
        keyword("dns.opcode", "S", Application(U8, &[], |opcode, _| A::DnsOpcode { opcode })),
        keyword("dns.rcode", "8", Application(U16, app::DNS_RCODES, |n, _| A::DnsRcode(n))),
        keyword("dns.rrtype", "8", Application(U16, app::DNS_TYPES, |n, _| A::DnsType(n))),

        keyword("tls_sni", "S", Sticky(TlsSni)),
        keyword("tls_cert_subject", "S", Sticky(TlsSubject)),
        keyword("tls_cert_issuer", "S", Sticky(TlsIssuer)),
        keyword("tls_cert_serial", "S", Sticky(TlsSerial)),
        keyword("tls_cert_fingerprint", "S", Sticky(TlsFingerprint)),
        keyword("tls_certs", "9", Sticky(TlsCertificates)),
        keyword("tls.subject", "S", Own(|b, v| content::quoted_content(b, TlsSubject, v, false))),
        keyword("tls.issuerdn", "S", Own(|b, v| content::quoted_content(b, TlsIssuer, v, false))),
        keyword("tls.fingerprint", "S", Own(|b, v| content::quoted_content(b, TlsFingerprint, v, true))),
        keyword("tls.version", "S", Own(app::tls_version)),
        keyword("tls.cert_chain_len", "S", Application(U32, &[], |n, _| A::TlsCertCount(n))),
        keyword("tls_cert_notbefore", "S", Unsupported("the dates of a certificate")),
        keyword("tls_cert_notafter", "S", Unsupported("the dates of a certificate")),
        keyword("tls_cert_expired", "S", Unsupported("the dates of a certificate")),
        keyword("tls_cert_valid", "S", Unsupported("the dates of a certificate")),
        keyword("ja3_hash", "S", Sticky(Ja3Hash)),
        keyword("ja3_string", "S", Sticky(Ja3String)),

        keyword("ssh_proto", "S", Sticky(SshProtocol)),
        keyword("ssh.protocol", "9", Sticky(SshProtocol)),
        keyword("ssh_software", "S", Sticky(SshSoftware)),
        keyword("ssh.protoversion", "7", Own(app::ssh_version)),
        keyword("ssh.softwareversion", "7", Own(|b, v| content::quoted_content(b, SshSoftware, v, false))),

        keyword("ftpbounce", "2S", Own(|b, _| { b.application(A::FtpBounce); Ok(()) })),
        keyword("ftpdata_command", "S", Own(app::ftpdata_command)),
        keyword("ftp.dynamic_port", "8", Application(U16, &[], other)),
        keyword("ftp.mode", "8", Application(1, &[("active", 0), ("passive", 1)], other)),
        keyword("ftp.reply_received", "8", Application(1, app::TRUTH, other)),

        keyword("filename", "S", Own(app::filename)),
        keyword("fileext", "S", Own(app::fileext)),
        keyword("filemagic", "S", Own(app::filemagic)),
        keyword("filesize", "S", Application(U64, &[], |n, _| A::FileSize(n))),
        keyword("filemd5", "S", Unsupported("a list of hashes outside the rule")),
        keyword("filesha1", "S", Unsupported("a list of hashes outside the rule")),
        keyword("filesha256", "S", Unsupported("a list of hashes outside the rule")),
        keyword("file_type", "3", Unsupported("Snort's file identification")),

        keyword("dce_iface", "23S", Own(app::dce_iface)),
        keyword("dcerpc.iface", "S", Own(app::dce_iface)),
        keyword("dce_opnum", "23S", Own(app::dce_opnum)),
        keyword("dcerpc.opnum", "S", Own(app::dce_opnum)),
        keyword("dce_stub_data", "23S", Sticky(DceStubData)),
        keyword("smb_named_pipe", "S", Sticky(SmbNamedPipe)),
        keyword("smb_share", "S", Sticky(SmbShare)),
        keyword("smb.version", "8", Application(U8, &[], |n, _| A::SmbVersion(n))),

        keyword("sip_method", "23", Own(content::sip_method)),
        keyword("sip_stat_code", "23", Own(app::sip_stat_code)),
        keyword("sip_header", "23", Sticky(SipHeader)),
        keyword("sip_body", "23", Sticky(SipBody)),

        keyword("krb5_cname", "S", Sticky(Krb5ClientName)),
        keyword("krb5_sname", "S", Sticky(Krb5ServerName)),
        keyword("krb5_msg_type", "S", Application(U8, &[], |n, _| A::Krb5MessageType(n))),
        keyword("krb5_err_code", "S", Own(app::krb5_error)),
        keyword("krb5.weak_encryption", "S", Own(|b, _| { b.application(other(Numbers::one(1), "krb5.weak_encryption")); Ok(()) })),
        keyword("krb5.ticket_encryption", "S", Unsupported("the encryption of a ticket")),
        keyword("snmp.version", "S", Application(U32, &[], |n, _| A::SnmpVersion(n))),
        keyword("snmp.pdu_type", "S", Application(U32, app::SNMP_PDUS, |n, _| A::SnmpPduType(n))),
        keyword("snmp.trap_type", "8", Application(U32, &[], other)),
        keyword("dhcp.leasetime", "S", Application(U64, &[], other)),
        keyword("dhcp.rebinding_time", "S", Application(U64, &[], other)),
        keyword("dhcp.renewal_time", "S", Application(U64, &[], other)),
        keyword("ike.exchtype", "S", Application(U8, &[], |n, _| A::IkeExchangeType(n))),
        keyword("ike.chosen_sa_attribute", "S", Unsupported("an attribute of IKE")),
        keyword("ike.key_exchange_payload_length", "S", Application(U32, &[], other)),
        keyword("ike.nonce_payload_length", "S", Application(U32, &[], other)),
        keyword("rfb.sectype", "S", Application(U32, &[], |n, _| A::RfbSecurityType(n))),
        keyword("rfb.secresult", "S", Application(U32, app::RFB_RESULTS, other)),
        keyword("mqtt.type", "S", Application(15, app::MQTT_TYPES, |n, _| A::MqttType(n))),
        keyword("mqtt.protocol_version", "S", Application(U8, &[], other)),
        keyword("mqtt.qos", "S", Application(2, &[], other)),
        keyword("mqtt.reason_code", "S", Application(U8, &[], other)),
        keyword("mqtt.connack.session_present", "S", Application(1, app::TRUTH, other)),
        keyword("mqtt.connack.return_code", "S", Application(U8, &[], other)),
        keyword("mqtt.connack.returncode", "9", Application(U8, &[], other)),
        keyword("mqtt.flags", "S", Own(|b, v| app::mqtt_flags(b, "mqtt.flags", app::MQTT_FLAGS, v))),
        keyword("mqtt.connect.flags", "S", Own(|b, v| app::mqtt_flags(b, "mqtt.connect.flags", app::MQTT_CONNECT_FLAGS, v))),
        keyword("mqtt.CONNECT.clientid", "9", Sticky(MqttClientId)),
        keyword("modbus", "S", Own(app::modbus)),
        keyword("modbus_func", "23", Application(U8, app::MODBUS_FUNCTIONS, |n, _| A::ModbusFunction(n))),
        keyword("modbus_unit", "23", Application(U8, &[], |n, _| A::ModbusUnit(n))),
        keyword("dnp3_func", "23S", Application(U8, app::DNP3_FUNCTIONS, |n, _| A::Dnp3Function(n))),
        keyword("dnp3.func", "S", Application(U8, app::DNP3_FUNCTIONS, |n, _| A::Dnp3Function(n))),
        keyword("dnp3.data", "S", Sticky(Dnp3Data)),
        keyword("dnp3_ind", "23S", Unsupported("indications of DNP3")),
        keyword("dnp3.ind", "S", Unsupported("indications of DNP3")),
        keyword("dnp3_obj", "23S", Unsupported("objects of DNP3")),
        keyword("dnp3.obj", "S", Unsupported("objects of DNP3")),
        keyword("enip_command", "S", Application(U16, app::ENIP_COMMANDS, |n, _| A::EnipCommand(n))),
        keyword("enip.command", "8", Application(U16, app::ENIP_COMMANDS, |n, _| A::EnipCommand(n))),
        keyword("cip_service", "S", Own(app::cip_service)),
        keyword("enip.cip_class", "8", Application(U32, &[], other)),
        keyword("enip.cip_instance", "8", Application(U32, &[], other)),
        keyword("enip.cip_attribute", "8", Application(U32, &[], other)),
        keyword("enip.cip_extendedstatus", "8", Application(U16, &[], other)),
        keyword("enip.cip_status", "8", Application(U8, &[], other)),
        keyword("enip.status", "8", Application(U32, &[], other)),
        keyword("enip.protocol_version", "8", Application(U16, &[], other)),
        keyword("enip.capabilities", "8", Application(U16, &[], other)),
        keyword("enip.revision", "8", Application(U16, &[], other)),
        keyword("enip.identity_status", "8", Application(U16, &[], other)),
        keyword("enip.state", "8", Application(U8, &[], other)),
        keyword("enip.serial", "8", Application(U32, &[], other)),
        keyword("enip.product_code", "8", Application(U16, &[], other)),
        keyword("enip.device_type", "8", Application(U16, &[], other)),
        keyword("enip.vendor_id", "8", Application(U16, &[], other)),
        keyword("nfs_procedure", "S", Own(|b, v| app::inclusive(b, v, A::NfsProcedure))),
        keyword("nfs.procedure", "9", Own(|b, v| app::inclusive(b, v, A::NfsProcedure))),
        keyword("nfs_version", "S", Own(|b, v| app::inclusive(b, v, A::NfsVersion))),
        keyword("nfs.version", "S", Own(|b, v| app::inclusive(b, v, A::NfsVersion))),
        keyword("websocket.opcode", "8", Application(U8, app::WEBSOCKET_OPCODES, |n, _| A::WebSocketOpcode(n))),
        keyword("websocket.mask", "8", Application(U32, &[], other)),
        keyword("websocket.flags", "8", Own(app::websocket_flags)),
        keyword("ldap.request.operation", "8", Application(U8, app::LDAP_OPERATIONS, |n, _| A::LdapRequestOperation(n))),
        keyword("ldap.responses.operation", "8", Application(U8, app::LDAP_OPERATIONS, |n, _| A::LdapResponseOperation(n))),
        keyword("ldap.responses.count", "8", Application(U32, &[], other)),
        keyword("ldap.responses.result_code", "8", Application(U32, &[], other)),
        keyword("pgsql.request", "9", Unsupported("a state of PostgreSQL")),
        keyword("ntp.version", "8", Application(U8, &[], other)),
        keyword("ntp.mode", "8", Application(U8, &[], other)),
        keyword("ntp.stratum", "8", Application(U8, &[], other)),
        keyword("ntp.reference_id", "8", Unsupported("a text of NTP")),
        // Snort 3: industrial protocols and SIP.
        keyword("cip_attribute", "3", Application(U16, &[], other)),
        keyword("cip_class", "3", Application(U16, &[], other)),
        keyword("cip_conn_path_class", "3", Application(U16, &[], other)),
        keyword("cip_instance", "3", Application(U32, &[], other)),
        keyword("cip_req", "3", Unsupported("a request of CIP")),
        keyword("cip_rsp", "3", Unsupported("a response of CIP")),
        keyword("cip_status", "3", Application(U8, &[], other)),
        keyword("enip_req", "3", Unsupported("a request of EtherNet/IP")),
        keyword("enip_rsp", "3", Unsupported("a response of EtherNet/IP")),
        keyword("gtp_type", "23", Unsupported("GTP")),
        keyword("gtp_info", "23", Unsupported("GTP")),
        keyword("gtp_version", "23", Unsupported("GTP")),
        keyword("s7commplus_content", "3", Unsupported("S7comm plus")),
        keyword("s7commplus_func", "3", Unsupported("S7comm plus")),
        keyword("s7commplus_opcode", "3", Unsupported("S7comm plus")),
        keyword("iec104_apci_type", "3", Unsupported("IEC 104")),
        keyword("iec104_asdu_func", "3", Unsupported("IEC 104")),
        keyword("mms_data", "3", Unsupported("MMS")),
        keyword("mms_func", "3", Unsupported("MMS")),
        keyword("opcua_msg_service", "3", Unsupported("OPC UA")),
        keyword("opcua_msg_type", "3", Unsupported("OPC UA")),
        keyword("opcua_node_id", "3", Unsupported("OPC UA")),
        keyword("opcua_node_namespace_index", "3", Unsupported("OPC UA")),
        keyword("preprocessor", "2", Unsupported("alerts of a preprocessor")),
    ]
};

fn table_and_buffers() -> Vec<Keyword> {
    let mut all = TABLE.to_vec();
    // The name of each buffer is a keyword, unless the table has an entry for that name.
    for &buffer in Buffer::ALL {
        let name = buffer.name();
        if all.iter().all(|keyword| keyword.name != name) {
            let engines = match name {
                "modbus_data" => "23",
                "dnp3_data" => "23S",
                _ if SINCE_SURICATA_8.contains(&name) => "8",
                _ if IN_NEITHER_SURICATA.contains(&name) => "9",
                _ => "S",
            };
            all.push(keyword(name, engines, What::Sticky(buffer)));
        }
    }
    all
}

/// Buffer keywords that only Suricata 8 has, according to the keywords that 7.0.17 and 8.0.6
/// register.
const SINCE_SURICATA_8: &[&str] = &[
    "dns.queries.rrname",
    "dns.answers.rrname",
    "dns.authorities.rrname",
    "dns.additionals.rrname",
    "dns.response.rrname",
    "mdns.queries.rrname",
    "mdns.answers.rrname",
    "mdns.authorities.rrname",
    "mdns.additionals.rrname",
    "mdns.response.rrname",
    "tls.alpn",
    "tls.subjectaltname",
    "ftp.command",
    "ftp.command_data",
    "ftp.reply",
    "ftp.completion_code",
    "smtp.helo",
    "smtp.mail_from",
    "smtp.rcpt_to",
    "email.from",
    "email.to",
    "email.cc",
    "email.subject",
    "email.date",
    "email.message_id",
    "email.x_mailer",
    "email.url",
    "email.received",
    "sip.from",
    "sip.to",
    "sip.via",
    "sip.user_agent",
    "sip.content_type",
    "sip.content_length",
    "sdp.origin",
    "sdp.session_name",
    "sdp.session_info",
    "sdp.uri",
    "sdp.email",
    "sdp.phone_number",
    "sdp.connection_data",
    "sdp.bandwidth",
    "sdp.time",
    "sdp.repeat_time",
    "sdp.timezone",
    "sdp.encryption_key",
    "sdp.attribute",
    "sdp.media.media",
    "sdp.media.media_info",
    "sdp.media.connection_data",
    "sdp.media.encryption_key",
    "mqtt.connect.protocol_string",
    "enip.product_name",
    "enip.service_name",
    "pgsql.query",
    "ldap.request.dn",
    "ldap.request.attribute_type",
    "ldap.responses.attribute_type",
    "ldap.responses.message",
    "ldap.responses.dn",
    "websocket.payload",
];

/// Buffer keywords that Suricata registers neither in version 7 nor in 8.
const IN_NEITHER_SURICATA: &[&str] = &["email.body_md5", "tftp.file", "tftp.mode"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_keyword_is_in_the_table_once() {
        let names: Vec<_> = all().iter().map(|keyword| keyword.name).collect();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn buffers_of_one_version_are_buffers() {
        for name in SINCE_SURICATA_8.iter().chain(IN_NEITHER_SURICATA) {
            assert!(find(name).is_some_and(|keyword| keyword.buffer().is_some()), "{name}");
        }
    }

    #[test]
    fn a_word_that_is_nearly_a_keyword_is_met_by_it() {
        assert_eq!(nearest("http.usr_agent"), Some("http.user_agent"));
        assert_eq!(nearest("Content"), Some("content"));
        assert_eq!(nearest("zzzzzzzz"), None);
    }
}
