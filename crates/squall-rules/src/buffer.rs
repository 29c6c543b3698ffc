//! Buffers: the parts of traffic that rules inspect.

use crate::{Application, End};

macro_rules! buffers {
    ($($(#[$doc:meta])* $name:ident $text:literal $application:expr, $end:expr, $multiple:literal;)*) => {
        /// A part of the traffic that a rule inspects separately.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Buffer { $($(#[$doc])* $name,)* }

        impl Buffer {
            /// All buffers, in table order.
            pub const ALL: &'static [Buffer] = &[$(Buffer::$name,)*];

            /// The name of the buffer in Suricata.
            pub fn name(self) -> &'static str {
                match self { $(Buffer::$name => $text,)* }
            }

            /// The protocol that provides the buffer; `None`: any or several protocols.
            pub fn application(self) -> Option<Application> {
                match self { $(Buffer::$name => $application,)* }
            }

            /// The end that sends the buffer; `None`: either end.
            pub fn sent_by(self) -> Option<End> {
                match self { $(Buffer::$name => $end,)* }
            }

            /// Whether a transaction can have several instances of the buffer. Each mention in a
            /// rule may match another instance.
            pub fn is_multiple(self) -> bool {
                match self { $(Buffer::$name => $multiple,)* }
            }
        }
    };
}

use Application::*;
const CLIENT: Option<End> = Some(End::Client);
const SERVER: Option<End> = Some(End::Server);

buffers! {
    /// The payload of a packet, or the reassembled stream.
    Payload "pkt_data" None, None, false;
    /// `rawbytes`, and Snort's `raw_data`: the payload before any decoding.
    RawPayload "raw_data" None, None, false;
    /// The output of `base64_decode`.
    Base64Data "base64_data" None, None, false;
    /// HTTP bodies, mail attachments, and files in FTP, SMB and NFS, all decoded.
    FileData "file.data" None, None, true;
    FileName "file.name" None, None, true;
    FileMagic "file.magic" None, None, true;
    Ipv4Header "ipv4.hdr" None, None, false;
    Ipv6Header "ipv6.hdr" None, None, false;
    TcpHeader "tcp.hdr" None, None, false;
    UdpHeader "udp.hdr" None, None, false;
    Icmp4Header "icmpv4.hdr" None, None, false;
    Icmp6Header "icmpv6.hdr" None, None, false;

    /// Normalized URI: percent-decoded, without `//` and `../`.
    HttpUri "http.uri" Some(Http), CLIENT, false;
    HttpRawUri "http.uri.raw" Some(Http), CLIENT, false;
    HttpMethod "http.method" Some(Http), CLIENT, false;
    HttpProtocol "http.protocol" Some(Http), None, false;
    HttpRequestLine "http.request_line" Some(Http), CLIENT, false;
    HttpResponseLine "http.response_line" Some(Http), SERVER, false;
    /// All header lines, normalized, without cookies.
    HttpHeader "http.header" Some(Http), None, false;
    HttpRawHeader "http.header.raw" Some(Http), None, false;
    HttpHeaderNames "http.header_names" Some(Http), None, false;
    /// One header line, `name: value`.
    HttpRequestHeader "http.request_header" Some(Http), CLIENT, true;
    HttpResponseHeader "http.response_header" Some(Http), SERVER, true;
    HttpCookie "http.cookie" Some(Http), None, false;
    HttpUserAgent "http.user_agent" Some(Http), CLIENT, false;
    /// Host in lower case, without the port.
    HttpHost "http.host" Some(Http), CLIENT, false;
    HttpRawHost "http.host.raw" Some(Http), CLIENT, false;
    HttpReferer "http.referer" Some(Http), CLIENT, false;
    HttpAccept "http.accept" Some(Http), CLIENT, false;
    HttpAcceptEncoding "http.accept_enc" Some(Http), CLIENT, false;
    HttpAcceptLanguage "http.accept_lang" Some(Http), CLIENT, false;
    HttpConnection "http.connection" Some(Http), None, false;
    HttpContentType "http.content_type" Some(Http), None, false;
    HttpContentLength "http.content_len" Some(Http), None, false;
    HttpServer "http.server" Some(Http), SERVER, false;
    HttpLocation "http.location" Some(Http), SERVER, false;
    /// The request or status line with all headers, up to and including the empty line.
    HttpStart "http.start" Some(Http), None, false;
    HttpRequestBody "http.request_body" Some(Http), CLIENT, false;
    HttpResponseBody "http.response_body" Some(Http), SERVER, false;
    HttpStatusCode "http.stat_code" Some(Http), SERVER, false;
    HttpStatusMessage "http.stat_msg" Some(Http), SERVER, false;
    /// Snort's trailers, true client IP and parameter buffers.
    HttpTrailer "http_trailer" Some(Http), None, false;
    HttpTrueIp "http_true_ip" Some(Http), CLIENT, false;
    HttpParameter "http_param" Some(Http), CLIENT, false;
    Http2HeaderName "http2.header_name" Some(Http2), None, true;

    DnsQuery "dns.query" Some(Dns), None, true;
    DnsQueryName "dns.queries.rrname" Some(Dns), None, true;
    DnsAnswerName "dns.answers.rrname" Some(Dns), SERVER, true;
    DnsAuthorityName "dns.authorities.rrname" Some(Dns), SERVER, true;
    DnsAdditionalName "dns.additionals.rrname" Some(Dns), None, true;
    DnsResponseName "dns.response.rrname" Some(Dns), SERVER, true;
    MdnsQueryName "mdns.queries.rrname" Some(Mdns), None, true;
    MdnsAnswerName "mdns.answers.rrname" Some(Mdns), None, true;
    MdnsAuthorityName "mdns.authorities.rrname" Some(Mdns), None, true;
    MdnsAdditionalName "mdns.additionals.rrname" Some(Mdns), None, true;
    MdnsResponseName "mdns.response.rrname" Some(Mdns), None, true;

    TlsSni "tls.sni" Some(Tls), CLIENT, false;
    TlsAlpn "tls.alpn" Some(Tls), None, true;
    TlsVersionText "tls.version" Some(Tls), None, false;
    TlsSubject "tls.cert_subject" Some(Tls), SERVER, true;
    TlsIssuer "tls.cert_issuer" Some(Tls), SERVER, false;
    /// Hexadecimal in upper case, with colons.
    TlsSerial "tls.cert_serial" Some(Tls), SERVER, false;
    /// SHA-1 in lower case, with colons.
    TlsFingerprint "tls.cert_fingerprint" Some(Tls), SERVER, false;
    TlsSubjectAltName "tls.subjectaltname" Some(Tls), SERVER, true;
    /// Whole certificates, in DER.
    TlsCertificates "tls.certs" Some(Tls), SERVER, true;
    TlsRandom "tls.random" Some(Tls), None, false;
    TlsRandomBytes "tls.random_bytes" Some(Tls), None, false;
    TlsRandomTime "tls.random_time" Some(Tls), None, false;
    Ja3Hash "ja3.hash" Some(Tls), CLIENT, false;
    Ja3String "ja3.string" Some(Tls), CLIENT, false;
    Ja3sHash "ja3s.hash" Some(Tls), SERVER, false;
    Ja3sString "ja3s.string" Some(Tls), SERVER, false;
    Ja4Hash "ja4.hash" Some(Tls), CLIENT, false;

    SshProtocol "ssh.proto" Some(Ssh), None, false;
    SshSoftware "ssh.software" Some(Ssh), None, false;
    SshHassh "ssh.hassh" Some(Ssh), CLIENT, false;
    SshHasshString "ssh.hassh.string" Some(Ssh), CLIENT, false;
    SshHasshServer "ssh.hassh.server" Some(Ssh), SERVER, false;
    SshHasshServerString "ssh.hassh.server.string" Some(Ssh), SERVER, false;

    FtpCommand "ftp.command" Some(Ftp), CLIENT, false;
    FtpCommandData "ftp.command_data" Some(Ftp), CLIENT, false;
    FtpReply "ftp.reply" Some(Ftp), SERVER, true;
    FtpCompletionCode "ftp.completion_code" Some(Ftp), SERVER, true;
    FtpDataCommand "ftpdata_command" Some(FtpData), None, false;

    SmtpHelo "smtp.helo" Some(Smtp), CLIENT, false;
    SmtpMailFrom "smtp.mail_from" Some(Smtp), CLIENT, false;
    SmtpRcptTo "smtp.rcpt_to" Some(Smtp), CLIENT, true;
    EmailFrom "email.from" Some(Smtp), CLIENT, false;
    EmailTo "email.to" Some(Smtp), CLIENT, false;
    EmailCc "email.cc" Some(Smtp), CLIENT, false;
    EmailSubject "email.subject" Some(Smtp), CLIENT, false;
    EmailDate "email.date" Some(Smtp), CLIENT, false;
    EmailMessageId "email.message_id" Some(Smtp), CLIENT, false;
    EmailXMailer "email.x_mailer" Some(Smtp), CLIENT, false;
    EmailBodyMd5 "email.body_md5" Some(Smtp), CLIENT, false;
    EmailUrl "email.url" Some(Smtp), CLIENT, true;
    EmailReceived "email.received" Some(Smtp), CLIENT, true;

    SmbNamedPipe "smb.named_pipe" Some(Smb), None, false;
    SmbShare "smb.share" Some(Smb), None, false;
    SmbNtlmUser "smb.ntlmssp_user" Some(Smb), CLIENT, false;
    SmbNtlmDomain "smb.ntlmssp_domain" Some(Smb), CLIENT, false;
    DceStubData "dcerpc.stub_data" Some(DceRpc), None, false;

    SipMethod "sip.method" Some(Sip), CLIENT, false;
    SipUri "sip.uri" Some(Sip), CLIENT, false;
    SipProtocol "sip.protocol" Some(Sip), None, false;
    SipRequestLine "sip.request_line" Some(Sip), CLIENT, false;
    SipResponseLine "sip.response_line" Some(Sip), SERVER, false;
    SipStatusCode "sip.stat_code" Some(Sip), SERVER, false;
    SipStatusMessage "sip.stat_msg" Some(Sip), SERVER, false;
    SipFrom "sip.from" Some(Sip), None, true;
    SipTo "sip.to" Some(Sip), None, true;
    SipVia "sip.via" Some(Sip), None, true;
    SipUserAgent "sip.user_agent" Some(Sip), None, true;
    SipContentType "sip.content_type" Some(Sip), None, true;
    SipContentLength "sip.content_length" Some(Sip), None, true;
    /// Snort's buffers with all header lines and with the body.
    SipHeader "sip_header" Some(Sip), None, false;
    SipBody "sip_body" Some(Sip), None, false;

    SdpOrigin "sdp.origin" Some(Sdp), None, false;
    SdpSessionName "sdp.session_name" Some(Sdp), None, false;
    SdpSessionInfo "sdp.session_info" Some(Sdp), None, false;
    SdpUri "sdp.uri" Some(Sdp), None, false;
    SdpEmail "sdp.email" Some(Sdp), None, false;
    SdpPhoneNumber "sdp.phone_number" Some(Sdp), None, false;
    SdpConnectionData "sdp.connection_data" Some(Sdp), None, false;
    SdpBandwidth "sdp.bandwidth" Some(Sdp), None, true;
    SdpTime "sdp.time" Some(Sdp), None, true;
    SdpRepeatTime "sdp.repeat_time" Some(Sdp), None, true;
    SdpTimezone "sdp.timezone" Some(Sdp), None, false;
    SdpEncryptionKey "sdp.encryption_key" Some(Sdp), None, false;
    SdpAttribute "sdp.attribute" Some(Sdp), None, true;
    SdpMedia "sdp.media.media" Some(Sdp), None, true;
    SdpMediaInfo "sdp.media.media_info" Some(Sdp), None, true;
    SdpMediaConnectionData "sdp.media.connection_data" Some(Sdp), None, true;
    SdpMediaEncryptionKey "sdp.media.encryption_key" Some(Sdp), None, true;
    Krb5ClientName "krb5.cname" Some(Krb5), None, true;
    Krb5ServerName "krb5.sname" Some(Krb5), None, true;
    SnmpCommunity "snmp.community" Some(Snmp), None, false;
    SnmpUser "snmp.usm" Some(Snmp), None, false;
    TftpFile "tftp.file" Some(Tftp), CLIENT, false;
    TftpMode "tftp.mode" Some(Tftp), CLIENT, false;
    RfbName "rfb.name" Some(Rfb), SERVER, false;
    MqttPublishTopic "mqtt.publish.topic" Some(Mqtt), None, false;
    MqttPublishMessage "mqtt.publish.message" Some(Mqtt), None, false;
    MqttSubscribeTopic "mqtt.subscribe.topic" Some(Mqtt), CLIENT, true;
    MqttUnsubscribeTopic "mqtt.unsubscribe.topic" Some(Mqtt), CLIENT, true;
    MqttClientId "mqtt.connect.clientid" Some(Mqtt), CLIENT, false;
    MqttUserName "mqtt.connect.username" Some(Mqtt), CLIENT, false;
    MqttPassword "mqtt.connect.password" Some(Mqtt), CLIENT, false;
    MqttProtocolString "mqtt.connect.protocol_string" Some(Mqtt), CLIENT, false;
    MqttWillTopic "mqtt.connect.willtopic" Some(Mqtt), CLIENT, false;
    MqttWillMessage "mqtt.connect.willmessage" Some(Mqtt), CLIENT, false;
    QuicSni "quic.sni" Some(Quic), CLIENT, false;
    QuicUserAgent "quic.ua" Some(Quic), CLIENT, false;
    QuicVersion "quic.version" Some(Quic), None, false;
    QuicCyuHash "quic.cyu.hash" Some(Quic), CLIENT, true;
    QuicCyuString "quic.cyu.string" Some(Quic), CLIENT, true;
    IkeInitiatorSpi "ike.init_spi" Some(Ike), None, false;
    IkeResponderSpi "ike.resp_spi" Some(Ike), None, false;
    IkeVendor "ike.vendor" Some(Ike), None, true;
    IkeNonce "ike.nonce_payload" Some(Ike), None, false;
    IkeKeyExchange "ike.key_exchange_payload" Some(Ike), None, false;
    Dnp3Data "dnp3_data" Some(Dnp3), None, false;
    ModbusData "modbus_data" Some(Modbus), None, false;
    EnipProductName "enip.product_name" Some(Enip), None, true;
    EnipServiceName "enip.service_name" Some(Enip), None, true;
    PgsqlQuery "pgsql.query" Some(Pgsql), CLIENT, false;
    LdapRequestDn "ldap.request.dn" Some(Ldap), CLIENT, false;
    LdapRequestAttribute "ldap.request.attribute_type" Some(Ldap), CLIENT, true;
    LdapResponseAttribute "ldap.responses.attribute_type" Some(Ldap), SERVER, true;
    LdapResponseMessage "ldap.responses.message" Some(Ldap), SERVER, true;
    LdapResponseDn "ldap.responses.dn" Some(Ldap), SERVER, true;
    WebSocketPayload "websocket.payload" Some(WebSocket), None, false;
    /// Addresses in binary, for datasets of addresses.
    SourceAddress "ip.src" None, None, false;
    DestinationAddress "ip.dst" None, None, false;
    /// Frames in Suricata's sense (`frame:`), such as lines of text protocols.
    Frame "frame" None, None, false;
}

impl Buffer {
    /// Finds a buffer by Suricata's name. Snort's names are in the table of keywords.
    pub fn named(name: &str) -> Option<Buffer> {
        Buffer::ALL.iter().copied().find(|buffer| buffer.name() == name)
    }
}
