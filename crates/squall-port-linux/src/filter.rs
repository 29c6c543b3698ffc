//! Capture filters in the language of tcpdump (pcap-filter(7)), compiled by libpcap, which is loaded when first needed.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    sync::OnceLock,
};

use libloading::Library;
use squall_bpf::classic::{Filter, Instruction};

#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error("capture filters are compiled by libpcap, which is not here: {0}\n  try: apt install libpcap0.8")]
    NoLibrary(String),
    #[error(
        "filter {expression:?}: {problem}\n  the language is that of tcpdump: man pcap-filter; such as 'udp and port 53'"
    )]
    Expression { expression: String, problem: String },
}

/// `struct bpf_program`.
#[repr(C)]
struct Program {
    len: c_uint,
    insns: *mut Instruction4,
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction4 {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

struct Libpcap {
    open_dead: unsafe extern "C" fn(c_int, c_int) -> *mut c_void,
    compile: unsafe extern "C" fn(*mut c_void, *mut Program, *const c_char, c_int, u32) -> c_int,
    freecode: unsafe extern "C" fn(*mut Program),
    geterr: unsafe extern "C" fn(*mut c_void) -> *mut c_char,
    close: unsafe extern "C" fn(*mut c_void),
    /// What the functions are in.
    _library: Library,
}

/// Compiles `expression` for frames of `link_type` (the tcpdump.org list, 1 is Ethernet), of which `snaplen` octets are kept.
///
/// # Errors
/// [`FilterError`].
pub fn compile(expression: &str, link_type: u16, snaplen: u32) -> Result<Filter, FilterError> {
    let bad = |problem: String| FilterError::Expression { expression: expression.to_owned(), problem };
    let text = CString::new(expression).map_err(|_| bad("a filter has no zero octets".into()))?;
    let pcap = libpcap()?;
    // SAFETY: both arguments are plain numbers.
    let handle = unsafe { (pcap.open_dead)(link_type.into(), snaplen as c_int) };
    if handle.is_null() {
        return Err(bad("libpcap has no memory left".into()));
    }
    let mut program = Program { len: 0, insns: std::ptr::null_mut() };
    // PCAP_NETMASK_UNKNOWN: `ip broadcast` is then refused.
    // SAFETY: the handle is open, the text ends in a zero octet, and the program is ours to write.
    let status = unsafe { (pcap.compile)(handle, &raw mut program, text.as_ptr(), 1, u32::MAX) };
    let result = if status == 0 {
        // SAFETY: so many instructions are there until they are freed below.
        let insns = unsafe { std::slice::from_raw_parts(program.insns, program.len as usize) };
        let insns = insns.iter().map(|&Instruction4 { code, jt, jf, k }| Instruction { code, jt, jf, k }).collect();
        // SAFETY: compiled just now, and freed once.
        unsafe { (pcap.freecode)(&raw mut program) };
        Filter::new(insns).map_err(|e| bad(e.to_string()))
    } else {
        // SAFETY: the handle is open; its message ends in a zero octet and lives as long.
        let problem = unsafe { CStr::from_ptr((pcap.geterr)(handle)) }.to_string_lossy().into_owned();
        Err(bad(problem))
    };
    // SAFETY: opened above, and closed once.
    unsafe { (pcap.close)(handle) };
    result
}

fn libpcap() -> Result<&'static Libpcap, FilterError> {
    static LIBPCAP: OnceLock<Result<Libpcap, String>> = OnceLock::new();
    LIBPCAP.get_or_init(load).as_ref().map_err(|why| FilterError::NoLibrary(why.clone()))
}

fn load() -> Result<Libpcap, String> {
    let mut why = String::new();
    for name in ["libpcap.so.1", "libpcap.so.0.8", "libpcap.so"] {
        // SAFETY: what libpcap does when it is loaded disturbs nobody.
        match unsafe { Library::new(name) } {
            Ok(library) => return symbols(library).map_err(|e| e.to_string()),
            Err(error) if why.is_empty() => why = error.to_string(),
            Err(_) => {}
        }
    }
    Err(why)
}

fn symbols(library: Library) -> Result<Libpcap, libloading::Error> {
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
    Ok(Libpcap { open_dead, compile, freecode, geterr, close, _library: library })
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
}
