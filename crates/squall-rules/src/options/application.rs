//! Options that test the application layer, other than through its buffers.

use super::content::whole_number;
use super::parts;
use crate::rule::{Parsed, RuleBuilder, bad, not_loaded, unsupported};
use crate::set::quoted;
use crate::values::{Names, numbers, numbers_inclusive, plain, unsigned};
use crate::{ApplicationTest as A, Buffer, Content, End, EngineVersion, Numbers, Operation};

pub(crate) const TRUTH: Names = &[("no", 0), ("false", 0), ("yes", 1), ("true", 1)];

/// Source: IANA, "DNS RCODEs", in Suricata's spelling.
pub(crate) const DNS_RCODES: Names = &[
    ("noerror", 0),
    ("formerr", 1),
    ("servfail", 2),
    ("nxdomain", 3),
    ("notimp", 4),
    ("refused", 5),
    ("yxdomain", 6),
    ("yxrrset", 7),
    ("nxrrset", 8),
    ("notauth", 9),
    ("notzone", 10),
    ("badvers", 16),
    ("badkey", 17),
    ("badtime", 18),
    ("badmode", 19),
    ("badname", 20),
    ("badalg", 21),
    ("badtrunc", 22),
];

/// Source: IANA, "Resource Record (RR) TYPEs".
pub(crate) const DNS_TYPES: Names = &[
    ("a", 1),
    ("ns", 2),
    ("md", 3),
    ("mf", 4),
    ("cname", 5),
    ("soa", 6),
    ("mb", 7),
    ("mg", 8),
    ("mr", 9),
    ("null", 10),
    ("wks", 11),
    ("ptr", 12),
    ("hinfo", 13),
    ("minfo", 14),
    ("mx", 15),
    ("txt", 16),
    ("rp", 17),
    ("afsdb", 18),
    ("x25", 19),
    ("isdn", 20),
    ("rt", 21),
    ("nsap", 22),
    ("nsapptr", 23),
    ("sig", 24),
    ("key", 25),
    ("px", 26),
    ("gpos", 27),
    ("aaaa", 28),
    ("loc", 29),
    ("nxt", 30),
    ("srv", 33),
    ("atma", 34),
    ("naptr", 35),
    ("kx", 36),
    ("cert", 37),
    ("a6", 38),
    ("dname", 39),
    ("opt", 41),
    ("apl", 42),
    ("ds", 43),
    ("sshfp", 44),
    ("ipseckey", 45),
    ("rrsig", 46),
    ("nsec", 47),
    ("dnskey", 48),
    ("dhcid", 49),
    ("nsec3", 50),
    ("nsec3param", 51),
    ("tlsa", 52),
    ("smimea", 53),
    ("hip", 55),
    ("cds", 59),
    ("cdnskey", 60),
    ("openpgpkey", 61),
    ("csync", 62),
    ("zonemd", 63),
    ("svcb", 64),
    ("https", 65),
    ("spf", 99),
    ("nid", 104),
    ("l32", 105),
    ("l64", 106),
    ("lp", 107),
    ("eui48", 108),
    ("eui64", 109),
    ("tkey", 249),
    ("tsig", 250),
    ("ixfr", 251),
    ("axfr", 252),
    ("maila", 253),
    ("mailb", 254),
    ("any", 255),
    ("uri", 256),
    ("caa", 257),
];

/// Source: RFC 9113 §11.2.
pub(crate) const HTTP2_FRAMES: Names = &[
    ("data", 0),
    ("headers", 1),
    ("priority", 2),
    ("rst_stream", 3),
    ("rststream", 3),
    ("settings", 4),
    ("push_promise", 5),
    ("pushpromise", 5),
    ("ping", 6),
    ("goaway", 7),
    ("window_update", 8),
    ("windowupdate", 8),
    ("continuation", 9),
];

/// Source: RFC 9113 §7.
pub(crate) const HTTP2_ERRORS: Names = &[
    ("no_error", 0),
    ("protocol_error", 1),
    ("internal_error", 2),
    ("flow_control_error", 3),
    ("settings_timeout", 4),
    ("stream_closed", 5),
    ("frame_size_error", 6),
    ("refused_stream", 7),
    ("cancel", 8),
    ("compression_error", 9),
    ("connect_error", 10),
    ("enhance_your_calm", 11),
    ("inadequate_security", 12),
    ("http_1_1_required", 13),
];

pub(crate) const SNMP_PDUS: Names = &[
    ("get_request", 0),
    ("get_next_request", 1),
    ("response", 2),
    ("set_request", 3),
    ("trap_v1", 4),
    ("get_bulk_request", 5),
    ("inform_request", 6),
    ("trap_v2", 7),
    ("report", 8),
];

pub(crate) const RFB_RESULTS: Names = &[("ok", 0), ("fail", 1), ("toomany", 2), ("unknown", 3)];

/// Source: OASIS MQTT 5.0 §2.1.2.
pub(crate) const MQTT_TYPES: Names = &[
    ("unassigned", 0),
    ("connect", 1),
    ("connack", 2),
    ("publish", 3),
    ("puback", 4),
    ("pubrec", 5),
    ("pubrel", 6),
    ("pubcomp", 7),
    ("subscribe", 8),
    ("suback", 9),
    ("unsubscribe", 10),
    ("unsuback", 11),
    ("pingreq", 12),
    ("pingresp", 13),
    ("disconnect", 14),
    ("auth", 15),
];

pub(crate) const MQTT_FLAGS: Names = &[("retain", 1), ("dup", 8)];

pub(crate) const MQTT_CONNECT_FLAGS: Names =
    &[("clean_session", 2), ("will", 4), ("will_retain", 32), ("password", 64), ("username", 128)];

pub(crate) const MODBUS_FUNCTIONS: Names = &[
    ("read_coils", 1),
    ("read_discrete_inputs", 2),
    ("read_holding_registers", 3),
    ("read_input_registers", 4),
    ("write_single_coil", 5),
    ("write_single_register", 6),
    ("read_exception_status", 7),
    ("diagnostics", 8),
    ("get_comm_event_counter", 11),
    ("get_comm_event_log", 12),
    ("write_multiple_coils", 15),
    ("write_multiple_registers", 16),
    ("report_slave_id", 17),
    ("read_file_record", 20),
    ("write_file_record", 21),
    ("mask_write_register", 22),
    ("read_write_multiple_registers", 23),
    ("read_fifo_queue", 24),
    ("encapsulated_interface_transport", 43),
];

/// Source: IEEE 1815, table 4-2.
pub(crate) const DNP3_FUNCTIONS: Names = &[
    ("confirm", 0),
    ("read", 1),
    ("write", 2),
    ("select", 3),
    ("operate", 4),
    ("direct_operate", 5),
    ("direct_operate_nr", 6),
    ("immed_freeze", 7),
    ("immed_freeze_nr", 8),
    ("freeze_clear", 9),
    ("freeze_clear_nr", 10),
    ("freeze_at_time", 11),
    ("freeze_at_time_nr", 12),
    ("cold_restart", 13),
    ("warm_restart", 14),
    ("initialize_data", 15),
    ("initialize_appl", 16),
    ("start_appl", 17),
    ("stop_appl", 18),
    ("save_config", 19),
    ("enable_unsolicited", 20),
    ("disable_unsolicited", 21),
    ("assign_class", 22),
    ("delay_measure", 23),
    ("record_current_time", 24),
    ("open_file", 25),
    ("close_file", 26),
    ("delete_file", 27),
    ("get_file_info", 28),
    ("authenticate_file", 29),
    ("abort_file", 30),
    ("activate_config", 31),
    ("authenticate_req", 32),
    ("authenticate_err", 33),
    ("response", 129),
    ("unsolicited_response", 130),
    ("authenticate_resp", 131),
];

pub(crate) const ENIP_COMMANDS: Names = &[
    ("nop", 0),
    ("listservices", 4),
    ("listidentity", 99),
    ("listinterfaces", 100),
    ("registersession", 101),
    ("unregistersession", 102),
    ("sendrrdata", 111),
    ("sendunitdata", 112),
    ("indicatestatus", 114),
    ("cancel", 115),
];

/// Source: RFC 6455 §5.2.
pub(crate) const WEBSOCKET_OPCODES: Names = &[
    ("continuation", 0),
    ("text", 1),
    ("binary", 2),
    ("connectionclose", 8),
    ("ping", 9),
    ("pong", 10),
];

/// Source: RFC 4511, tags of `protocolOp`.
pub(crate) const LDAP_OPERATIONS: Names = &[
    ("bind_request", 0),
    ("bind_response", 1),
    ("unbind_request", 2),
    ("search_request", 3),
    ("search_result_entry", 4),
    ("search_result_done", 5),
    ("modify_request", 6),
    ("modify_response", 7),
    ("add_request", 8),
    ("add_response", 9),
    ("del_request", 10),
    ("del_response", 11),
    ("mod_dn_request", 12),
    ("mod_dn_response", 13),
    ("compare_request", 14),
    ("compare_response", 15),
    ("abandon_request", 16),
    ("search_result_reference", 19),
    ("extended_request", 23),
    ("extended_response", 24),
    ("intermediate_response", 25),
];

pub(crate) fn event(builder: &mut RuleBuilder, prefix: &str, value: &str) -> Parsed {
    // The name may be followed by a count.
    let name = parts(value).next().unwrap_or("");
    if name.is_empty() || name.contains(char::is_whitespace) {
        return bad("expected the name of an event");
    }
    // Engines prefix the names of events (`applayer_...`, `http.too_many_encoding_layers`).
    let name = if name.starts_with(prefix) { name.to_owned() } else { format!("{prefix}{name}") };
    builder.application(A::Event(name));
    Ok(())
}

/// Parses `!http`, `unknown` or `tls,to_server`.
pub(crate) fn protocol(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let value = value.trim();
    let (value, negated) = value.strip_prefix('!').map_or((value, false), |rest| (rest, true));
    let (name, mode) = value.split_once(',').unwrap_or((value, ""));
    if !matches!(
        mode.trim(),
        "" | "direction" | "either" | "to_server" | "to_client" | "final" | "original"
    ) {
        return bad(format!("{} is not understood after the protocol", quoted(mode)));
    }
    let name = name.trim().to_ascii_lowercase();
    if builder.engine == Some(EngineVersion::Suricata7) {
        if !mode.trim().is_empty() {
            return not_loaded(EngineVersion::Suricata7, "a mode after the protocol");
        }
        if name == "unknown" {
            return not_loaded(EngineVersion::Suricata7, "the protocol \"unknown\"");
        }
    }
    let is = match name.as_str() {
        "unknown" | "failed" => None,
        name => match crate::rule::application(name) {
            Some(application) => Some(application),
            None => return unsupported(format!("unknown protocol {}", quoted(name))),
        },
    };
    builder.application(A::Protocol { is, negated });
    Ok(())
}

/// Parses `1.2`, `!1.3` or `"1.0"`.
pub(crate) fn tls_version(builder: &mut RuleBuilder, value: &str) -> Parsed {
    // If there is no value, the keyword is the sticky buffer with the version as text.
    if value.trim().is_empty() {
        return builder.stick(Buffer::TlsVersionText, "");
    }
    let text = plain(value);
    let (text, negated) =
        text.strip_prefix('!').map_or((text.as_str(), false), |rest| (rest, true));
    let version = match text.trim() {
        "1.0" => 0x0301,
        "1.1" => 0x0302,
        "1.2" => 0x0303,
        "1.3" => 0x0304,
        other => match unsigned(other).and_then(|number| u16::try_from(number).ok()) {
            Some(number) if other.starts_with("0x") => number,
            _ => return bad(format!("unknown version {}: expected 1.0 to 1.3", quoted(other))),
        },
    };
    builder.application(A::TlsVersion { any_of: vec![version], negated });
    Ok(())
}

/// Parses `tls1.0,tls1.2` or `!sslv2`.
pub(crate) fn ssl_version(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut any_of = vec![];
    let mut negations = 0;
    for part in parts(value) {
        let (name, negated) = part.strip_prefix('!').map_or((part, false), |rest| (rest, true));
        negations += usize::from(negated);
        any_of.push(match name.to_ascii_lowercase().as_str() {
            "sslv2" => 0x0002,
            "sslv3" => 0x0300,
            "tls1.0" => 0x0301,
            "tls1.1" => 0x0302,
            "tls1.2" => 0x0303,
            "tls1.3" => 0x0304,
            _ => {
                return bad(format!(
                    "unknown version {}: expected sslv2, sslv3, tls1.0 to tls1.3",
                    quoted(name)
                ));
            }
        });
    }
    if negations != 0 && negations != any_of.len() {
        return unsupported("allowed and excluded versions in one option");
    }
    builder.application(A::TlsVersion { any_of, negated: negations > 0 });
    Ok(())
}

/// Parses `client_hello,server_hello`. In Suricata, the separator is `|`.
pub(crate) fn ssl_state(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut any_of = vec![];
    let mut negations = 0;
    for part in value.split([',', '|']).map(str::trim) {
        let (name, negated) = part.strip_prefix('!').map_or((part, false), |rest| (rest, true));
        negations += usize::from(negated);
        let name = match name.to_ascii_lowercase().as_str() {
            "client_key" => "client_keyx".to_owned(),
            "server_key" => "server_keyx".to_owned(),
            name => name.to_owned(),
        };
        if !["client_hello", "server_hello", "client_keyx", "server_keyx", "unknown"]
            .contains(&name.as_str())
        {
            return bad(format!(
                "unknown state {}: expected client_hello, server_hello, client_keyx, server_keyx or \
                 unknown",
                quoted(&name)
            ));
        }
        any_of.push(name);
    }
    if negations != 0 && negations != any_of.len() {
        return unsupported("allowed and excluded states in one option");
    }
    builder.application(A::SslState { any_of, negated: negations > 0 });
    Ok(())
}

pub(crate) fn ssh_version(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let version = plain(value);
    if version.is_empty() {
        return bad("expected a version, such as 2.0");
    }
    builder.application(A::SshVersion(version));
    Ok(())
}

/// Parses `ftpdata_command:retr`, in Suricata's spelling.
pub(crate) fn ftpdata_command(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let command = plain(value).to_ascii_uppercase();
    if !matches!(command.as_str(), "RETR" | "STOR") {
        return bad(format!("{} is not understood: expected retr or stor", quoted(value)));
    }
    let here = builder.inspection(Buffer::FtpDataCommand);
    let content = Content { pattern: command.into_bytes(), nocase: true, ..Content::default() };
    builder.plain_step(here, Operation::Content(content));
    Ok(())
}

fn text(value: &str) -> Parsed<(String, bool)> {
    let value = value.trim();
    let (value, negated) = value.strip_prefix('!').map_or((value, false), |rest| (rest, true));
    let text = plain(value);
    if text.is_empty() { bad("expected a text") } else { Ok((text, negated)) }
}

pub(crate) fn filename(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (holds, negated) = text(value)?;
    builder.application(A::FileName { holds, negated });
    Ok(())
}

pub(crate) fn fileext(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (is, negated) = text(value)?;
    builder.application(A::FileExtension { is, negated });
    Ok(())
}

pub(crate) fn filemagic(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (holds, negated) = text(value)?;
    builder.application(A::FileMagic { holds, negated });
    Ok(())
}

/// Parses `4b324fc8-..., >1, any_frag`, or in Snort 3 `uuid 4b324fc8-..., version >1`.
pub(crate) fn dce_iface(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut parts = parts(value);
    let text = parts.next().unwrap_or("");
    let text = text.strip_prefix("uuid ").unwrap_or(text).trim().trim_matches('"');
    let groups: Vec<&str> = text.split('-').collect();
    let digits: String = groups.concat();
    let shaped = matches!(groups[..], [a, b, c, d, e] if [a.len(), b.len(), c.len(), d.len(), e.len()] == [8, 4, 4, 4, 12]);
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| shaped && !digits.contains('+'));
    let Some(number) = number else { return bad(format!("{} is not a UUID", quoted(text))) };
    let (mut version, mut any_fragment) = (Numbers::any(), false);
    for part in parts {
        match part {
            "any_frag" => any_fragment = true,
            "" => {}
            part => {
                version =
                    numbers(part.strip_prefix("version ").unwrap_or(part), u16::MAX.into(), &[])?
            }
        }
    }
    builder.application(A::DceInterface { uuid: number.to_be_bytes(), version, any_fragment });
    Ok(())
}

/// Parses `15,18-20`, in which ranges include both ends.
pub(crate) fn dce_opnum(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut all = Numbers::none();
    for part in parts(plain(value).as_str()) {
        all = all.union(&numbers_inclusive(part, u16::MAX.into(), &[])?);
    }
    builder.application(A::DceOpnum(all));
    Ok(())
}

/// Parses Snort's `200, 4`, in which a single digit is a class of a hundred codes.
pub(crate) fn sip_stat_code(builder: &mut RuleBuilder, value: &str) -> Parsed {
    if value.trim().is_empty() {
        return builder.stick(Buffer::SipStatusCode, "");
    }
    let (value, negated) =
        value.trim().strip_prefix('!').map_or((value, false), |rest| (rest, true));
    let mut ranges = vec![];
    for part in parts(value) {
        match whole_number(part, 1, 999)? as u64 {
            class @ 1..=9 => ranges.push(class * 100..=class * 100 + 99),
            code => ranges.push(code..=code),
        }
    }
    let codes: Numbers = ranges.into_iter().collect();
    let codes = if negated { Numbers::range(100..=999).without(&codes) } else { codes };
    builder.application(A::SipStatusCode(codes));
    Ok(())
}

/// Parses an error code (RFC 4120 §7.5.9). Negative codes do not occur in practice.
pub(crate) fn krb5_error(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let code = whole_number(value, 0, i32::MAX.into())?;
    builder.application(A::Other { keyword: "krb5_err_code", numbers: Numbers::one(code as u64) });
    Ok(())
}

/// Parses names of bits in an octet. A `!` requires the bit to be clear.
pub(crate) fn mqtt_flags(
    builder: &mut RuleBuilder,
    keyword: &'static str,
    names: Names,
    value: &str,
) -> Parsed {
    let (mut set, mut unset) = (0u64, 0u64);
    if let Ok(numbers) = numbers(value, u8::MAX.into(), &[]) {
        builder.application(A::Other { keyword, numbers });
        return Ok(());
    }
    for part in parts(value) {
        let (name, negated) = part.strip_prefix('!').map_or((part, false), |rest| (rest, true));
        let Some(&(_, bit)) = names.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))
        else {
            return bad(format!("unknown flag {}", quoted(name)));
        };
        if negated {
            unset |= bit;
        } else {
            set |= bit;
        }
    }
    let numbers: Numbers =
        (0..=255).filter(|n| n & set == set && n & unset == 0).map(|n| n..=n).collect();
    builder.application(A::Other { keyword, numbers });
    Ok(())
}

pub(crate) fn websocket_flags(builder: &mut RuleBuilder, value: &str) -> Parsed {
    mqtt_flags(builder, "websocket.flags", &[("fin", 128), ("comp", 64)], value)
}

/// Parses `function 8` or `unit 10, function 3`. Accesses to coils and registers are not supported.
pub(crate) fn modbus(builder: &mut RuleBuilder, value: &str) -> Parsed {
    for part in parts(value) {
        match super::two_words(part) {
            ("unit", of) => {
                let unit = numbers(of, u8::MAX.into(), &[])?;
                builder.application(A::ModbusUnit(unit));
            }
            ("function", of) => {
                let (of, negated) = of.strip_prefix('!').map_or((of, false), |rest| (rest, true));
                if unsigned(of).is_none() {
                    return unsupported("a function category: give function numbers instead");
                }
                let one = numbers(of, u8::MAX.into(), &[])?;
                let set = if negated { Numbers::range(0..=255).without(&one) } else { one };
                builder.application(A::ModbusFunction(set));
            }
            ("subfunction" | "access" | "address" | "value", _) => {
                return unsupported("Modbus subfunctions and accesses");
            }
            _ => {
                return bad(format!(
                    "{} is not understood: expected unit or function",
                    quoted(part)
                ));
            }
        }
    }
    Ok(())
}

/// Parses `service` or `service,class,attribute`.
pub(crate) fn cip_service(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut all = vec![];
    for (index, part) in parts(value).enumerate() {
        if index > 2 {
            return bad("expected at most service, class and attribute");
        }
        all.push(numbers(part, u16::MAX.into(), &[])?);
    }
    builder.application(A::CipService(all));
    Ok(())
}

pub(crate) fn inclusive(builder: &mut RuleBuilder, value: &str, make: fn(Numbers) -> A) -> Parsed {
    let set = numbers_inclusive(value, u32::MAX.into(), &[])?;
    builder.application(make(set));
    Ok(())
}

/// Parses Snort 3's `>5,request`.
pub(crate) fn http_num_headers(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (count, of) = value.split_once(',').unwrap_or((value, ""));
    let of = match (of.trim(), builder.rule.flow.to) {
        ("request", _) | ("", None | Some(End::Server)) => End::Client,
        ("", Some(End::Client)) => End::Server,
        (other, _) => return bad(format!("{} is not understood: expected request", quoted(other))),
    };
    let count = numbers(count, u16::MAX.into(), &[])?;
    builder.application(A::HttpHeaderCount { of, count });
    Ok(())
}
