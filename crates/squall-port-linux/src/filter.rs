//! Capture filters in the language of tcpdump (pcap-filter(7)), compiled by libpcap, which is
//! loaded on first use.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, OnceLock},
};

use libloading::Library;
use squall_bpf::classic::{Filter, Instruction, KERNEL_INSTRUCTIONS};
use squall_port::{ETHERNET, PortFacts, Tags};

/// Octets kept by default, as in tcpdump: more than any frame has.
pub const SNAPLEN: u32 = 262_144;

#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error(
        "capture filters need libpcap or tcpdump, and neither is installed: {0}\n  try apt install \
         libpcap0.8 (a static binary needs tcpdump: apt install tcpdump)"
    )]
    NoLibrary(String),
    #[error(
        "filter {expression:?}: {problem}\n  the syntax is tcpdump's (man pcap-filter), such as \
         'udp and port 53'"
    )]
    Expression { expression: String, problem: String },
    #[error("cannot compile filter {expression:?}, which has vlan, for {interface}: {problem}")]
    Interface { expression: String, interface: String, problem: String },
}

/// Compiles `expression` for frames of a port with `facts`; matching frames are truncated to
/// `snaplen` octets.
///
/// # Errors
///
/// [`FilterError`].
pub fn compile_port(
    expression: &str,
    facts: &PortFacts,
    snaplen: u32,
) -> Result<Arc<squall_port::Filter>, FilterError> {
    // VLAN tags are taken to be stripped, as in tcpdump on an interface. In a file, and for
    // expressions with `vlan`, they stay in the frame.
    let aside = facts.link_type == ETHERNET && !facts.virtual_time && !mentions_vlan(expression);
    let tags = if aside { Tags::Aside } else { Tags::InPlace };
    compile_with(expression, facts.link_type, snaplen, tags)
}

/// Compiles `expression` for the packets of `link_type` in a file.
///
/// # Errors
/// [`FilterError`].
pub fn compile_file(
    expression: &str,
    link_type: u16,
) -> Result<Arc<squall_port::Filter>, FilterError> {
    compile_with(expression, link_type, SNAPLEN, Tags::InPlace)
}

fn compile_with(
    expression: &str,
    link_type: u16,
    snaplen: u32,
    tags: Tags,
) -> Result<Arc<squall_port::Filter>, FilterError> {
    let program = compile(expression, link_type, snaplen)?;
    Ok(Arc::new(squall_port::Filter { expression: expression.to_owned(), snaplen, program, tags }))
}

/// `struct bpf_program`.
#[repr(C)]
struct BpfProgram {
    len: c_uint,
    insns: *mut BpfInsn,
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct BpfInsn {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

struct Libpcap {
    create: unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_void,
    set_snaplen: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    set_buffer_size: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    activate: unsafe extern "C" fn(*mut c_void) -> c_int,
    open_dead: unsafe extern "C" fn(c_int, c_int) -> *mut c_void,
    compile: unsafe extern "C" fn(*mut c_void, *mut BpfProgram, *const c_char, c_int, u32) -> c_int,
    freecode: unsafe extern "C" fn(*mut BpfProgram),
    geterr: unsafe extern "C" fn(*mut c_void) -> *mut c_char,
    close: unsafe extern "C" fn(*mut c_void),
    /// Keeps the library loaded, because the functions above are in it.
    _library: Library,
}

/// Compiles `expression` for frames of `link_type` (the tcpdump.org list, 1 is Ethernet); matching
/// frames are truncated to `snaplen` octets.
///
/// # Errors
///
/// [`FilterError`].
pub fn compile(expression: &str, link_type: u16, snaplen: u32) -> Result<Filter, FilterError> {
    let pcap = match libpcap() {
        Ok(pcap) => pcap,
        Err(missing) => {
            let Some(tcpdump) = tcpdump() else { return Err(missing) };
            return compile_by_tcpdump(tcpdump, FrameSource::Of(link_type), expression, snaplen);
        }
    };
    // SAFETY: both arguments are plain numbers.
    let handle = unsafe { (pcap.open_dead)(data_link_type(link_type), snaplen as c_int) };
    if handle.is_null() {
        let problem = "libpcap has no memory left".into();
        return Err(FilterError::Expression { expression: expression.to_owned(), problem });
    }
    Handle { handle, pcap }.compile(expression)
}

/// libpcap's internal number of the link type: for a few types it differs from the number in files
/// (`pcap-common.c`, Linux).
fn data_link_type(link_type: u16) -> c_int {
    match link_type {
        // These are ATM_RFC1483, RAW, SLIP_BSDOS, PPP_BSDOS and ATM_CLIP.
        100 => 11,
        101 => 12,
        102 => 15,
        103 => 16,
        106 => 19,
        same => same.into(),
    }
}

/// As [`compile`], for a packet socket on the Ethernet interface `interface`: the kernel has
/// stripped the outer VLAN tag, and programs ask it for the tag. libpcap compiles such programs for
/// open interfaces only, so this opens the interface for the duration of the call.
///
/// # Errors
/// [`FilterError`].
pub(crate) fn compile_for(
    interface: &str,
    expression: &str,
    snaplen: u32,
) -> Result<Filter, FilterError> {
    let pcap = match libpcap() {
        Ok(pcap) => pcap,
        Err(missing) => {
            let Some(tcpdump) = tcpdump() else { return Err(missing) };
            return compile_by_tcpdump(tcpdump, FrameSource::On(interface), expression, snaplen);
        }
    };
    let bad = |problem: String| FilterError::Interface {
        expression: expression.to_owned(),
        interface: interface.to_owned(),
        problem,
    };
    let name = CString::new(interface).map_err(|_| bad("a name has no zero octets".into()))?;
    // PCAP_ERRBUF_SIZE
    let mut error = [0; 256];
    // SAFETY: the name ends in a zero octet, and the buffer is as long as pcap_create(3) wants it.
    let handle = unsafe { (pcap.create)(name.as_ptr(), error.as_mut_ptr()) };
    if handle.is_null() {
        // SAFETY: libpcap ended its message with a zero octet, within the buffer.
        return Err(bad(unsafe { CStr::from_ptr(error.as_ptr()) }.to_string_lossy().into_owned()));
    }
    let handle = Handle { handle, pcap };
    // The handle is never read from, so the smallest buffer suffices.
    const BUFFER_OCTETS: c_int = 1 << 18;
    // SAFETY: the handle is not active yet.
    unsafe { (pcap.set_buffer_size)(handle.handle, BUFFER_OCTETS) };
    // SAFETY: as above.
    unsafe { (pcap.set_snaplen)(handle.handle, snaplen as c_int) };
    // SAFETY: as above. Warnings are positive.
    match unsafe { (pcap.activate)(handle.handle) } {
        0.. => handle.compile(expression),
        code => Err(bad(format!("libpcap cannot open it (error {code}) {}", handle.error()))),
    }
}

/// Whether `expression` may test VLAN tags.
pub fn mentions_vlan(expression: &str) -> bool {
    expression.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "vlan")
}

/// The longest expression, octets: some 850 addresses, for which libpcap takes about 3 s.
const MAX_EXPRESSION: usize = 16 << 10;

/// An open `pcap_t`.
struct Handle {
    handle: *mut c_void,
    pcap: &'static Libpcap,
}

/// Limits the compilation time, because libpcap's grows with the square of the length.
fn check_length(expression: &str) -> Result<(), FilterError> {
    if expression.len() <= MAX_EXPRESSION {
        return Ok(());
    }
    let problem = format!("{} octets, expected at most {MAX_EXPRESSION}", expression.len());
    let start = expression.chars().take(60).collect::<String>() + "...";
    Err(FilterError::Expression { expression: start, problem })
}

/// Adds a hint to libpcap's message for link types that it cannot filter.
fn explained(mut problem: String) -> String {
    if problem.contains("filtering not implemented") {
        problem += "; try squall edit --dlt enet first, and filter its output";
    }
    problem
}

/// Checks and shortens a program from libpcap; the error is its problem.
fn checked(program: Vec<Instruction>, expression: &str) -> Result<Filter, String> {
    let filter = Filter::new(program).map_err(|error| error.to_string())?.reduced();
    if filter.takes_nothing() && mentions_vlan(expression) {
        return Err("it takes no frame: 'vlan' moves all later terms past the tag, so it must be \
                    first: 'vlan and udp', not 'udp and vlan'"
            .into());
    }
    Ok(filter)
}

impl Handle {
    fn compile(&self, expression: &str) -> Result<Filter, FilterError> {
        let bad = |problem: String| FilterError::Expression {
            expression: expression.to_owned(),
            problem,
        };
        check_length(expression)?;
        let text =
            CString::new(expression).map_err(|_| bad("a filter has no zero octets".into()))?;
        let mut program = BpfProgram { len: 0, insns: std::ptr::null_mut() };
        // Compile without libpcap's optimizer: it changes which frames some programs match
        // (docs/adr/0020-filters.md). With PCAP_NETMASK_UNKNOWN (the last argument), libpcap refuses
        // `ip broadcast`, which cannot be matched without the netmask.
        //
        // SAFETY: the handle is open, the text ends in a zero octet, and `program` is writable.
        let status = unsafe {
            (self.pcap.compile)(self.handle, &raw mut program, text.as_ptr(), 0, u32::MAX)
        };
        if status != 0 {
            return Err(bad(explained(self.error())));
        }
        // SAFETY: libpcap has written `len` instructions, which stay until they are freed below.
        let insns = unsafe { std::slice::from_raw_parts(program.insns, program.len as usize) };
        let insns = insns
            .iter()
            .map(|&BpfInsn { code, jt, jf, k }| Instruction { code, jt, jf, k })
            .collect();
        // SAFETY: compiled just now, and freed once.
        unsafe { (self.pcap.freecode)(&raw mut program) };
        checked(insns, expression).map_err(bad)
    }

    fn error(&self) -> String {
        // SAFETY: the handle is open; its message ends in a zero octet and lives as long.
        unsafe { CStr::from_ptr((self.pcap.geterr)(self.handle)) }.to_string_lossy().into_owned()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: open until now, and closed once.
        unsafe { (self.pcap.close)(self.handle) };
    }
}

/// The frames that a filter is compiled for.
#[derive(Clone, Copy, Debug)]
enum FrameSource<'a> {
    /// Frames of a link type, with VLAN tags in the frames.
    Of(u16),
    /// Frames of an interface, where the kernel has stripped the outer VLAN tag.
    On(&'a str),
}

/// Searches only the directories where packages install programs: root also runs the program, so
/// PATH is not trusted.
fn tcpdump() -> Option<&'static Path> {
    ["/usr/bin/tcpdump", "/usr/sbin/tcpdump", "/usr/local/bin/tcpdump", "/usr/local/sbin/tcpdump"]
        .into_iter()
        .map(Path::new)
        .find(|program| program.is_file())
}

/// Compiles with `tcpdump -ddd`, which prints the program and captures nothing: a static binary
/// cannot load libpcap.
fn compile_by_tcpdump(
    tcpdump: &Path,
    frames: FrameSource<'_>,
    expression: &str,
    snaplen: u32,
) -> Result<Filter, FilterError> {
    check_length(expression)?;
    let bad = |problem: String| match frames {
        FrameSource::Of(_) => {
            FilterError::Expression { expression: expression.to_owned(), problem }
        }
        FrameSource::On(interface) => FilterError::Interface {
            expression: expression.to_owned(),
            interface: interface.to_owned(),
            problem,
        },
    };
    let mut command = Command::new(tcpdump);
    command.args(["-O", "-ddd", "-s", &snaplen.to_string()]).stdin(Stdio::null());
    match frames {
        FrameSource::On(interface) => command.args(["-i", interface]),
        FrameSource::Of(link_type) => {
            let name = LINK_NAMES.iter().find(|(number, _)| *number == link_type);
            let name = name.ok_or_else(|| {
                bad(format!("tcpdump has no name for link type {link_type}; libpcap is not here"))
            })?;
            command.args(["-y", name.1])
        }
    };
    let output = command
        .args(["--", expression])
        .output()
        .map_err(|e| bad(format!("cannot run {}: {e}", tcpdump.display())))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or_default();
        let problem = last.strip_prefix("tcpdump: ").unwrap_or(last).to_owned();
        return Err(bad(explained(problem)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let program = decimal(&text).ok_or_else(|| bad("tcpdump -ddd printed no program".into()))?;
    checked(program, expression).map_err(bad)
}

/// Names of link types for tcpdump -y.
const LINK_NAMES: [(u16, &str); 17] = [
    (0, "NULL"),
    (1, "EN10MB"),
    (6, "IEEE802"),
    (9, "PPP"),
    (10, "FDDI"),
    (101, "RAW"),
    (105, "IEEE802_11"),
    (107, "FRELAY"),
    (108, "LOOP"),
    (113, "LINUX_SLL"),
    (117, "PFLOG"),
    (122, "IP_OVER_FC"),
    (127, "IEEE802_11_RADIO"),
    (192, "PPI"),
    (228, "IPV4"),
    (229, "IPV6"),
    (276, "LINUX_SLL2"),
];

/// Parses a line with the number of instructions, then one line per instruction: code, jumps and
/// operand.
fn decimal(text: &str) -> Option<Vec<Instruction>> {
    let mut lines = text.lines();
    let number: usize = lines.next()?.trim().parse().ok()?;
    let instruction = |line: &str| {
        let mut text = line.split_whitespace();
        let insn = Instruction {
            code: text.next()?.parse().ok()?,
            jt: text.next()?.parse().ok()?,
            jf: text.next()?.parse().ok()?,
            k: text.next()?.parse().ok()?,
        };
        text.next().is_none().then_some(insn)
    };
    let program: Vec<_> = lines.map(instruction).collect::<Option<_>>()?;
    (program.len() == number).then_some(program)
}

/// Conditions of a packet socket, in addition to those of the filter's program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketView {
    /// Drops the copies of frames that this host sends on this (loopback) interface, where they
    /// also arrive.
    pub loopback: Option<u32>,
    /// Passes only frames that this host sends.
    pub outgoing_only: bool,
    /// Frames arrive without their link-layer header; the port prepends a LINKTYPE_LINUX_SLL2
    /// header.
    pub cooked: bool,
    /// Keep at least this number of octets of a matching frame, even if the program returns fewer.
    pub min_keep: u32,
}

// BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K.
const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Adds these conditions to `program`, for the kernel to run on a packet socket; `None` if the
/// kernel accepts no such program, or if the program reads an octet that the kernel cannot provide.
pub(crate) fn for_socket(program: &Filter, view: SocketView) -> Option<Vec<Instruction>> {
    let insn = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let ancillary = |what: i32| (libc::SKF_AD_OFF + what) as u32;
    let outgoing = u32::from(libc::PACKET_OUTGOING);
    let mut all = Vec::new();
    if view.outgoing_only {
        all.push(insn(LOAD, 0, 0, ancillary(libc::SKF_AD_PKTTYPE)));
        all.extend([insn(JUMP_EQUAL, 1, 0, outgoing), insn(RETURN, 0, 0, 0)]);
    } else if let Some(loopback) = view.loopback {
        all.push(insn(LOAD, 0, 0, ancillary(libc::SKF_AD_PKTTYPE)));
        all.extend([
            insn(JUMP_EQUAL, 0, 3, outgoing),
            insn(LOAD, 0, 0, ancillary(libc::SKF_AD_IFINDEX)),
        ]);
        all.extend([insn(JUMP_EQUAL, 0, 1, loopback), insn(RETURN, 0, 0, 0)]);
    }
    if !program.is_for_kernel() {
        return None;
    }
    for &instruction in program.instructions() {
        let mut instruction = instruction;
        let is_load =
            instruction.code & 7 <= 1 && matches!(instruction.code & 0xe0, 0x20 | 0x40 | 0xa0);
        if is_load && view.cooked {
            instruction.k = uncooked(instruction.k)?;
        }
        if instruction.code == RETURN && instruction.k > 0 {
            instruction.k = instruction.k.max(view.min_keep);
        }
        all.push(instruction);
    }
    (all.len() <= KERNEL_INSTRUCTIONS).then_some(all)
}

/// Length of a LINKTYPE_LINUX_SLL2 header.
pub(crate) const SLL2: usize = 20;

/// Where the kernel has the octets that are at `at` in a cooked frame, as in libpcap's
/// `fix_offset`.
fn uncooked(at: u32) -> Option<u32> {
    let ancillary = |what: i32| Some((libc::SKF_AD_OFF + what) as u32);
    match at {
        _ if at >= SLL2 as u32 => Some(at - SLL2 as u32),
        0 => ancillary(libc::SKF_AD_PROTOCOL),
        4 => ancillary(libc::SKF_AD_IFINDEX),
        8 => ancillary(libc::SKF_AD_HATYPE),
        10 => ancillary(libc::SKF_AD_PKTTYPE),
        _ => None,
    }
}

fn libpcap() -> Result<&'static Libpcap, FilterError> {
    static LIBPCAP: OnceLock<Result<Libpcap, String>> = OnceLock::new();
    LIBPCAP.get_or_init(load).as_ref().map_err(|why| FilterError::NoLibrary(why.clone()))
}

fn load() -> Result<Libpcap, String> {
    let mut why = String::new();
    for name in ["libpcap.so.1", "libpcap.so.0.8", "libpcap.so"] {
        // SAFETY: libpcap's initialization has no side effects on this process.
        match unsafe { Library::new(name) } {
            Ok(library) => return symbols(library).map_err(|e| e.to_string()),
            Err(error) if why.is_empty() => why = error.to_string(),
            Err(_) => {}
        }
    }
    Err(why)
}

fn symbols(library: Library) -> Result<Libpcap, libloading::Error> {
    // SAFETY: pcap_create(3) has this type.
    let create = *unsafe { library.get(b"pcap_create\0") }?;
    // SAFETY: pcap_set_snaplen(3) has this type.
    let set_snaplen = *unsafe { library.get(b"pcap_set_snaplen\0") }?;
    // SAFETY: pcap_set_buffer_size(3) has this type.
    let set_buffer_size = *unsafe { library.get(b"pcap_set_buffer_size\0") }?;
    // SAFETY: pcap_activate(3) has this type.
    let activate = *unsafe { library.get(b"pcap_activate\0") }?;
    // SAFETY: pcap_open_dead(3) has this type.
    let open_dead = *unsafe { library.get(b"pcap_open_dead\0") }?;
    // SAFETY: pcap_compile(3) has this type.
    let compile = *unsafe { library.get(b"pcap_compile\0") }?;
    // SAFETY: pcap_freecode(3) has this type.
    let freecode = *unsafe { library.get(b"pcap_freecode\0") }?;
    // SAFETY: pcap_geterr(3) has this type.
    let geterr = *unsafe { library.get(b"pcap_geterr\0") }?;
    // SAFETY: pcap_close(3) has this type.
    let close = *unsafe { library.get(b"pcap_close\0") }?;
    Ok(Libpcap {
        create,
        set_snaplen,
        set_buffer_size,
        activate,
        open_dead,
        compile,
        freecode,
        geterr,
        close,
        _library: library,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_takes_what_it_names_and_a_bad_one_says_why() {
        let filter = match compile("udp port 53", 1, 96) {
            Err(FilterError::NoLibrary(why)) => return println!("SKIPPED: {why}"),
            other => other.unwrap(),
        };
        let mut frame = vec![0; 60];
        (frame[12], frame[14], frame[23], frame[37]) = (8, 0x45, 17, 53);
        assert_eq!(filter.run(&frame, 60), 96);
        frame[37] = 54;
        assert_eq!(filter.run(&frame, 60), 0);
        let error = compile("udp prot 53", 1, 96).unwrap_err().to_string();
        assert!(error.contains("udp prot 53") && error.contains("syntax error"), "{error}");
    }

    #[test]
    fn tcpdump_compiles_what_libpcap_does() {
        let Some(tcpdump) = tcpdump() else { return println!("SKIPPED: no tcpdump") };
        if let Err(missing) = libpcap() {
            return println!("SKIPPED: {missing}");
        }
        let expressions = [
            "udp port 53",
            "",
            "tcp[13] & 2 != 0 and net 10/8",
            "vlan and ip6",
            "ip protochain 17",
        ];
        for expression in expressions {
            for (link_type, snaplen) in [(1, 96), (276, SNAPLEN), (101, SNAPLEN)] {
                let by_tcpdump =
                    compile_by_tcpdump(tcpdump, FrameSource::Of(link_type), expression, snaplen);
                let by_libpcap = compile(expression, link_type, snaplen);
                match (by_libpcap, by_tcpdump) {
                    (Ok(a), Ok(b)) => assert_eq!(a, b, "{expression}"),
                    (Err(a), Err(b)) => {
                        assert_eq!(a.to_string(), b.to_string());
                    }
                    (a, b) => panic!("{expression}: {a:?} {b:?}"),
                }
            }
        }
        let error = compile_by_tcpdump(tcpdump, FrameSource::Of(1), "udp prot 53", 96)
            .unwrap_err()
            .to_string();
        assert!(error.contains("udp prot 53") && error.contains("syntax error"), "{error}");
        let unknown =
            compile_by_tcpdump(tcpdump, FrameSource::Of(999), "udp", 96).unwrap_err().to_string();
        assert!(unknown.contains("link type 999"), "{unknown}");
    }

    fn frames(packets: &[&str]) -> Vec<Vec<u8>> {
        let build = |text: &&str| {
            let packet = squall_wire::Packet::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            packet.build(None, &|_| unreachable!(), 1).expect("it fits").bytes
        };
        packets.iter().map(build).collect()
    }

    const TRAFFIC: [&str; 12] = [
        "eth/ipv4(src=192.168.1.1,dst=5.6.7.8)/udp(dport=53)/payload(random,len=30)",
        "eth/ipv4(src=192.168.1.1,dst=1.2.3.4)/icmp",
        "eth/ipv4(src=10.1.0.1)/tcp(dport=80)/payload(random,len=9)",
        "eth/ipv4(src=10.1.0.1)/sctp(sport=443)",
        "eth/ipv6/udp(sport=53)/payload(random,len=30)",
        "eth/ipv6/tcp(dport=443)",
        "eth/ipv6/icmpv6",
        "eth/vlan(id=5)/ipv4/udp(dport=53)",
        "eth/vlan(id=5)/ipv6/tcp(dport=80)",
        "eth/mpls/ipv4(src=10.1.0.1)/udp(dport=80)",
        "eth/ipv4(src=10.1.0.1)/gre/ipv4/udp(dport=53)",
        "eth/arp",
    ];

    /// libpcap's optimizer (1.10.3) changes the frames that each of these programs matches.
    #[test]
    fn programs_are_those_before_libpcaps_optimizer() {
        let frames = frames(&TRAFFIC);
        for (expression, taken) in [
            (
                "host 192.168.1.1 and not ((host 1.2.3.4 or host 5.6.7.8) and icmp) and not (host \
                 5.6.7.8 or host 192.168.1.1)",
                0,
            ),
            ("1/2=1/3&&1>4/5&&1>6/7", TRAFFIC.len()),
            ("(1 = 0) || (2147483648 / 4294967295 = 0) and (0 & 4294967295 = 0)", TRAFFIC.len()),
            ("len >= 2147483648 & 2147483648 or len < 0 | 2147483648", TRAFFIC.len()),
            ("len <= 4294967295 & 2147483647 and len > 2147483647 + 0", 0),
        ] {
            let filter = match compile(expression, 1, 96) {
                Err(FilterError::NoLibrary(why)) => return println!("SKIPPED: {why}"),
                other => other.unwrap(),
            };
            let takes = |frame: &&Vec<u8>| filter.run(frame, frame.len() as u32) > 0;
            assert_eq!(frames.iter().filter(takes).count(), taken, "{expression}");
        }
    }

    #[test]
    fn reduced_programs_take_the_frames_of_those_that_libpcap_writes() {
        let Some(tcpdump) = tcpdump() else { return println!("SKIPPED: no tcpdump") };
        let frames = frames(&TRAFFIC);
        let mut lengths = (0, 0);
        for expression in [
            "port 53 or port 80 or port 443",
            "portrange 50-100 and not src port 53",
            "host 192.168.1.1 or host 10.1.0.1 or net 10.1.0.0/16",
            "tcp[tcpflags] & (tcp-syn|tcp-ack) != 0 or icmp6",
            "ip[0] & 0xf > 5 or ip6[6] = 58 or ether[12:2] = 0x806",
            "not (udp port 53) and not (tcp port 80) and len < 80",
            "vlan and udp port 53 or vlan and ip6",
            "mpls and udp port 80",
            "(ip or ip6) and (udp or tcp) and (ip[9] = 17 or ip6[6] = 6)",
            "ip protochain 17 or ip6 protochain 6",
        ] {
            let mut command = Command::new(tcpdump);
            command.args(["-O", "-y", "EN10MB", "-ddd", expression]);
            let printed = command.output().unwrap().stdout;
            let program = decimal(&String::from_utf8_lossy(&printed)).unwrap();
            let written = Filter::new(program).unwrap();
            let filter = compile(expression, 1, SNAPLEN).unwrap();
            lengths.0 += written.instructions().len();
            lengths.1 += filter.instructions().len();
            for frame in &frames {
                // A frame of any length: a filter that reads past its end does not match.
                for len in 0..=frame.len() {
                    let run = |program: &Filter| program.run(&frame[..len], frame.len() as u32);
                    assert_eq!(
                        run(&written) > 0,
                        run(&filter) > 0,
                        "{expression}: {len} {frame:x?}"
                    );
                }
            }
        }
        assert!(lengths.1 * 3 < lengths.0 * 2, "{lengths:?}");
    }

    #[test]
    fn protochain_finds_a_protocol_after_any_chain_of_headers() {
        let ipv6 = |headers: &[&[u8]], first: u8| {
            let rest = headers.concat();
            let mut packet = vec![0x60, 0, 0, 0, 0, rest.len() as u8, first, 64];
            packet.resize(40, 0);
            [&packet, &rest[..]].concat()
        };
        // Next header, and a length of 0: 8 octets.
        let (to_fragment, to_routing, to_udp) = ([44, 0], [43, 0], [17, 0]);
        let extension = |front: [u8; 2]| [&front[..], &[0; 6]].concat();
        let udp = [0, 53, 0, 53, 0, 8, 0, 0];
        let chain =
            ipv6(&[&extension(to_fragment), &extension(to_routing), &extension(to_udp), &udp], 0);
        // The authentication header counts in units of four octets (RFC 4302 §2.2).
        let mut ah = vec![17, 1];
        ah.resize(12, 0);
        let after_ah = ipv6(&[&ah, &udp], 51);
        let tcp_alone = ipv6(&[&[0; 20]], 6);
        // Hop-by-hop options that repeat up to the end of the packet and beyond.
        let without_end = ipv6(&[&[0; 240]], 0);
        let mut ipv4 = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 51];
        ipv4.resize(20, 0);
        let ipv4 = [&ipv4, &ah[..], &udp].concat();
        for (expression, takes) in [
            ("ip6 protochain 17", [true, true, false, false, false]),
            ("ip protochain 17", [false, false, false, false, true]),
        ] {
            let filter = match compile(expression, 101, 96) {
                Err(FilterError::NoLibrary(why)) => return println!("SKIPPED: {why}"),
                other => other.unwrap(),
            };
            assert!(!filter.is_for_kernel());
            let view =
                SocketView { loopback: None, outgoing_only: false, cooked: false, min_keep: 0 };
            assert_eq!(for_socket(&filter, view), None, "the kernel takes no loops");
            let packets = [&chain, &after_ah, &tcp_alone, &without_end, &ipv4];
            let taken = packets.map(|packet| filter.run(packet, packet.len() as u32) > 0);
            assert_eq!(taken, takes, "{expression}");
        }
    }

    #[test]
    fn a_program_in_decimal_is_read_whole_or_not_at_all() {
        let one = Instruction { code: 6, jt: 0, jf: 0, k: 262_144 };
        assert_eq!(decimal("1\n6 0 0 262144\n"), Some(vec![one]));
        for bad in ["", "1\n", "2\n6 0 0 262144\n", "1\n6 0 0\n", "1\n6 0 0 1 1\n", "x\n"] {
            assert_eq!(decimal(bad), None, "{bad}");
        }
    }

    /// A random program; most are valid.
    fn random_program(random: &mut impl FnMut() -> u32) -> Vec<Instruction> {
        let n = 2 + random() % 12;
        let mut program: Vec<_> = (0..n)
            .map(|_| {
                let k = match random() % 4 {
                    0 => random() % 16,
                    1 => random() % 70,
                    2 => random() % 40,
                    // Greater offsets have a special meaning in the kernel (SKF_LL_OFF).
                    _ => random() % 0xff00_0000,
                };
                let codes = [
                    0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1,
                    0x02, 0x03, 0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54,
                    0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c, 0xa4, 0xac, 0x05, 0x15, 0x1d,
                    0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07, 0x87,
                ];
                let code = codes[random() as usize % codes.len()];
                let k = if code == 0x05 { k % 4 } else { k };
                Instruction { code, jt: (random() % 4) as u8, jf: (random() % 4) as u8, k }
            })
            .collect();
        program.push(Instruction { code: 0x16, jt: 0, jf: 0, k: 0 });
        program
    }

    /// A datagram socket runs its filter on received data and truncates the data to the length that
    /// the filter returns, but to at least one octet.
    #[test]
    fn programs_give_what_the_kernel_gives() {
        use std::os::{fd::AsRawFd, unix::net::UnixDatagram};

        let mut seed = 7u64;
        let mut random = || {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x14057b7ef767814f);
            (seed >> 33) as u32
        };
        let (to, from) = UnixDatagram::pair().unwrap();
        from.set_nonblocking(true).unwrap();
        let (mut compared, mut taken) = (0, 0);
        for _ in 0..20_000 {
            let program = random_program(&mut random);
            let Ok(filter) = Filter::new(program.clone()) else { continue };
            if crate::sys::attach_filter(from.as_raw_fd(), &program).is_err() {
                // The kernel also rejects reads of scratch memory that was never written.
                assert!(program.iter().any(|i| matches!(i.code, 0x60 | 0x61)), "{program:x?}");
                continue;
            }
            for _ in 0..4 {
                let octets: Vec<u8> = (0..1 + random() % 80).map(|_| random() as u8 % 32).collect();
                to.send(&octets).unwrap();
                let mut buffer = [0; 100];
                let got = from.recv(&mut buffer).unwrap_or(0);
                let expected = match filter.run(&octets, octets.len() as u32) as usize {
                    0 => 0,
                    keep => keep.min(octets.len()),
                };
                assert_eq!(expected, got, "{program:x?} on {octets:x?}");
                (compared, taken) = (compared + 1, taken + usize::from(got > 0));
            }
        }
        assert!(compared > 10_000 && taken > compared / 10, "{compared} {taken}");
    }

    #[test]
    fn plain_ip_is_filtered_and_a_tag_that_comes_too_late_is_explained() {
        let program = match compile("udp and src net 192.0.2.0/24", 101, 96) {
            Err(FilterError::NoLibrary(why)) => return println!("SKIPPED: {why}"),
            compiled => compiled.unwrap(),
        };
        let mut packet = [0; 28];
        (packet[0], packet[9]) = (0x45, 17);
        packet[12..16].copy_from_slice(&[192, 0, 2, 1]);
        assert_eq!(program.run(&packet, 28), 96);
        packet[14] = 3;
        assert_eq!(program.run(&packet, 28), 0);
        let nflog = compile("udp", 239, 96).unwrap_err().to_string();
        assert!(nflog.contains("--dlt enet"), "{nflog}");
        let error = compile("udp and vlan", 1, 96).unwrap_err().to_string();
        assert!(error.contains("'vlan and udp', not 'udp and vlan'"), "{error}");
    }

    #[test]
    fn a_cooked_program_looks_where_the_kernel_has_it() {
        let program = match compile("udp port 53 and inbound", 276, 96) {
            Err(FilterError::NoLibrary(why)) => return println!("SKIPPED: {why}"),
            other => other.unwrap(),
        };
        let view = SocketView { loopback: None, outgoing_only: false, cooked: true, min_keep: 200 };
        let fixed = for_socket(&program, view).unwrap();
        for what in [0xffff_f000, 0xffff_f004] {
            assert!(
                fixed.iter().any(|i| i.k == what),
                "protocol and type of the packet: {fixed:x?}"
            );
        }
        assert!(
            fixed.iter().any(|i| i.code == RETURN && i.k == 200)
                && fixed.iter().all(|i| i.code != RETURN || i.k != 96)
        );
        let address = Filter::new(vec![
            Instruction { code: 0x20, jt: 0, jf: 0, k: 12 },
            Instruction { code: 0x16, jt: 0, jf: 0, k: 0 },
        ]);
        assert_eq!(for_socket(&address.unwrap(), view), None, "a sender's address is not shown");
    }
}
