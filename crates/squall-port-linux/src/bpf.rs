//! Programs and maps in the kernel, by bpf(2). They live as long as their descriptors, links
//! included: a process that is killed leaves nothing attached.

use std::{
    ffi::CString,
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr::NonNull,
};

use libc::c_int;
use squall_bpf::{MapSpec, Object, functions_btf};

use crate::sys;

// linux/bpf.h; the libc crate lacks it.
// enum bpf_cmd
const MAP_CREATE: c_int = 0;
const MAP_LOOKUP: c_int = 1;
const MAP_UPDATE: c_int = 2;
const MAP_DELETE: c_int = 3;
const PROG_LOAD: c_int = 5;
const PROG_TEST_RUN: c_int = 10;
const OBJECT_INFO: c_int = 15;
const RAW_TRACEPOINT_OPEN: c_int = 17;
const BTF_LOAD: c_int = 18;
const LINK_CREATE: c_int = 28;

/// `BPF_F_MMAPABLE`
const MMAPABLE: u32 = 1 << 10;
/// `BPF_F_XDP_HAS_FRAGS`
const HAS_FRAGS: u32 = 1 << 5;
/// `BPF_F_XDP_DEV_BOUND_ONLY`
const BOUND: u32 = 1 << 6;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`
const LIVE_FRAMES: u32 = 1 << 1;
/// `BPF_XDP` of enum bpf_attach_type
const ATTACH_XDP: u32 = 37;

/// The kernel's type of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `frags`: supports frames of several buffers.
    Xdp {
        frags: bool,
    },
    /// As `Xdp` with `frags`, for one interface: it may call functions of that driver, and can only
    /// be attached there, in the driver.
    XdpOfInterface(u32),
    RawTracepoint,
}

/// How an XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum XdpMode {
    /// `XDP_FLAGS_SKB_MODE`: in the network stack, after the driver, on any interface.
    Generic = 1 << 1,
    /// `XDP_FLAGS_DRV_MODE`: in the driver.
    Native = 1 << 2,
}

/// A loaded program with its maps.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    maps: Vec<BpfMap>,
}

/// A map in the kernel.
#[derive(Debug)]
pub struct BpfMap {
    fd: OwnedFd,
    spec: MapSpec,
}

/// A program attached to an interface or a tracepoint; dropping it detaches the program.
#[derive(Debug)]
pub struct Attached(#[allow(dead_code)] OwnedFd);

/// One call that runs an XDP program over live frames.
#[derive(Clone, Copy, Debug)]
pub struct LiveRun<'a> {
    /// The frame's initial content, which the program finds.
    pub frame: &'a [u8],
    /// `ingress_ifindex` for the program; frames that it passes arrive on that interface.
    pub ingress: u32,
    pub repeat: u32,
    /// Number of frames passed to the driver together, at most 256; 0: the kernel's default, 64.
    pub batch: u32,
}

impl Program {
    /// Makes the maps and loads the program.
    ///
    /// # Errors
    /// EPERM without CAP_BPF (and CAP_NET_ADMIN), or the verifier's last lines.
    pub fn load(object: &Object, kind: Kind) -> io::Result<Self> {
        let maps = object.maps.iter().map(BpfMap::new).collect::<io::Result<Vec<_>>>()?;
        let fds: Vec<RawFd> = maps.iter().map(|m| m.fd.as_raw_fd()).collect();
        let fd = load(object, kind, &fds)?;
        Ok(Self { fd, maps })
    }

    /// Loads a program that uses the maps of this one, declared in the same order.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn load_with_maps_of(&self, object: &Object, kind: Kind) -> io::Result<Self> {
        let fds: Vec<RawFd> = self.maps.iter().map(|m| m.fd.as_raw_fd()).collect();
        Ok(Self { fd: load(object, kind, &fds)?, maps: Vec::new() })
    }

    /// The map that was declared as number `index`.
    pub fn map(&self, index: usize) -> &BpfMap {
        &self.maps[index]
    }

    /// Attaches an XDP program with a link: the kernel detaches it when this process ends, and
    /// refuses to replace another program.
    ///
    /// # Errors
    /// EBUSY: another program is attached. EOPNOTSUPP: the driver has no native XDP.
    pub fn attach_xdp(&self, ifindex: u32, mode: XdpMode) -> io::Result<Attached> {
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct Attr {
            prog_fd: u32,
            ifindex: u32,
            attach_type: u32,
            flags: u32,
        }
        let attr = Attr {
            prog_fd: self.fd.as_raw_fd() as u32,
            ifindex,
            attach_type: ATTACH_XDP,
            flags: mode as u32,
        };
        // SAFETY: the attribute has no pointers.
        unsafe { bpf_fd(LINK_CREATE, attr) }.map(Attached)
    }

    /// Attaches a raw tracepoint program.
    ///
    /// # Errors
    /// ENOENT: the kernel has no such tracepoint.
    pub fn attach_raw_tracepoint(&self, name: &str) -> io::Result<Attached> {
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct Attr {
            name: u64,
            prog_fd: u32,
            _pad: u32,
        }
        let name = CString::new(name).map_err(io::Error::other)?;
        let attr =
            Attr { name: name.as_ptr() as u64, prog_fd: self.fd.as_raw_fd() as u32, _pad: 0 };
        // SAFETY: `name` ends with a zero and outlives the call.
        unsafe { bpf_fd(RAW_TRACEPOINT_OPEN, attr) }.map(Attached)
    }

    /// Runs the program on frames that really go where it sends them
    /// (`BPF_F_TEST_XDP_LIVE_FRAMES`). Returns after `repeat` runs, or with EINTR after a signal.
    pub fn run_live(&self, run: &LiveRun<'_>) -> io::Result<()> {
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct XdpMd {
            data: u32,
            data_end: u32,
            data_meta: u32,
            ingress_ifindex: u32,
            rx_queue_index: u32,
            egress_ifindex: u32,
        }
        let md = XdpMd {
            data: 0,
            data_end: run.frame.len() as u32,
            data_meta: 0,
            ingress_ifindex: run.ingress,
            rx_queue_index: 0,
            egress_ifindex: 0,
        };
        let md: *const XdpMd = &md;
        let attr = TestRun {
            prog_fd: self.fd.as_raw_fd() as u32,
            data_size_in: run.frame.len() as u32,
            data_in: run.frame.as_ptr() as u64,
            repeat: run.repeat,
            ctx_size_in: mem::size_of::<XdpMd>() as u32,
            ctx_in: md as u64,
            flags: LIVE_FRAMES,
            batch_size: run.batch,
            ..TestRun::default()
        };
        // SAFETY: frame and context are readable in the lengths given, and outlive the call.
        unsafe { bpf(PROG_TEST_RUN, attr) }.map(drop)
    }

    /// Runs the program once over a copy of `frame`. Returns the program's return value.
    #[cfg(test)]
    pub fn run_once(&self, frame: &[u8]) -> io::Result<u32> {
        let mut attr = TestRun {
            prog_fd: self.fd.as_raw_fd() as u32,
            data_size_in: frame.len() as u32,
            data_in: frame.as_ptr() as u64,
            repeat: 1,
            ..TestRun::default()
        };
        // SAFETY: the frame is readable in the length given; the kernel writes to `attr` only.
        unsafe { bpf_mut(PROG_TEST_RUN, &mut attr) }?;
        Ok(attr.retval)
    }

    /// The program's id, by which other processes find it.
    pub fn id(&self) -> io::Result<u32> {
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct Attr {
            fd: u32,
            len: u32,
            info: u64,
        }
        // struct bpf_prog_info: type, id, ...
        let mut info = [0u32; 64];
        let out = info.as_mut_ptr();
        let attr = Attr {
            fd: self.fd.as_raw_fd() as u32,
            len: mem::size_of_val(&info) as u32,
            info: out as u64,
        };
        // SAFETY: `info` is writable in the length given, and asks for no arrays, as it is all
        // zero.
        unsafe { bpf(OBJECT_INFO, attr) }?;
        Ok(info[1])
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl BpfMap {
    pub fn new(spec: &MapSpec) -> io::Result<Self> {
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct Attr {
            kind: u32,
            key: u32,
            value: u32,
            entries: u32,
            flags: u32,
            inner_map_fd: u32,
            numa_node: u32,
            name: [u8; 16],
        }
        let attr = Attr {
            kind: spec.kind as u32,
            key: spec.key_octets,
            value: spec.value_octets,
            entries: spec.entries,
            flags: if spec.mmap { MMAPABLE } else { 0 },
            inner_map_fd: 0,
            numa_node: 0,
            name: name_of(&spec.name),
        };
        // SAFETY: the attribute has no pointers.
        let fd = unsafe { bpf_fd(MAP_CREATE, attr) }.map_err(explain_permission)?;
        Ok(Self { fd, spec: spec.clone() })
    }

    /// # Panics
    /// If key or value do not have the map's lengths (values of a per-CPU map are longer: 8 octets
    /// or more per CPU).
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(
            (key.len(), value.len()),
            (self.spec.key_octets as usize, self.spec.value_octets as usize)
        );
        let attr = self.element(key, value.as_ptr() as u64);
        // SAFETY: key and value are readable and as long as the map's.
        unsafe { bpf(MAP_UPDATE, attr) }.map(drop)
    }

    /// Reads the value of `key` into `value`, which must be as long as the map's.
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        assert_eq!(
            (key.len(), value.len()),
            (self.spec.key_octets as usize, self.spec.value_octets as usize)
        );
        let attr = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: the key is readable, the value writable, both as long as the map's.
        unsafe { bpf(MAP_LOOKUP, attr) }.map(drop)
    }

    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        assert_eq!(key.len(), self.spec.key_octets as usize);
        let attr = self.element(key, 0);
        // SAFETY: the key is readable and as long as the map's.
        unsafe { bpf(MAP_DELETE, attr) }.map(drop)
    }

    fn element(&self, key: &[u8], value: u64) -> Element {
        Element {
            map_fd: self.fd.as_raw_fd() as u32,
            _pad: 0,
            key: key.as_ptr() as u64,
            value,
            flags: 0,
        }
    }

    /// Maps an array made with `mmap` into memory, as a whole; entries are aligned to 8 octets.
    pub fn mapped(&self) -> io::Result<MappedArray> {
        assert!(self.spec.mmap, "asked for at the map's making");
        let len = self.spec.value_octets.next_multiple_of(8) as usize * self.spec.entries as usize;
        let len = len.next_multiple_of(4096);
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(MappedArray { base: NonNull::new(base.cast()).expect("mmap gives no null page"), len })
    }
}

/// Memory shared with a program in the kernel, in words that either side may write at any time.
#[derive(Debug)]
pub struct MappedArray {
    base: NonNull<u64>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only read and written
// atomically.
unsafe impl Send for MappedArray {}
// SAFETY: as above.
unsafe impl Sync for MappedArray {}

impl MappedArray {
    /// The 64-bit word number `index`.
    ///
    /// # Panics
    /// If it is out of bounds.
    pub fn word(&self, index: usize) -> &std::sync::atomic::AtomicU64 {
        assert!(index < self.len / 8, "outside of the map");
        // SAFETY: within the mapping, by the assertion.
        let word = unsafe { self.base.add(index) };
        // SAFETY: aligned, mapped as long as `self` lives, and only accessed atomically.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(word.as_ptr()) }
    }

    /// `len` octets from octet `offset` on, mapped as long as `self` lives. The caller and the
    /// program must agree on which of them writes an octet, and when.
    ///
    /// # Panics
    /// If they are out of bounds.
    pub fn octets(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "outside of the map");
        // SAFETY: within the mapping, by the assertion.
        unsafe { self.base.cast::<u8>().add(offset) }
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: this value's mapping, and nothing borrowed from it outlives it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Element {
    map_fd: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    _pad: u32,
}

fn load(object: &Object, kind: Kind, maps: &[RawFd]) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
        prog_btf_fd: u32,
        func_info_rec_size: u32,
        func_info: u64,
        func_info_cnt: u32,
        _rest: u32,
    }
    let mut insns = object.insns.clone();
    for r in &object.relocations {
        insns[r.insn].imm = maps[r.map];
        // The second slot of the instruction holds the offset in the value (BPF_PSEUDO_MAP_VALUE).
        insns[r.insn + 1].imm = r.offset.unwrap_or(0) as i32;
    }
    let insns: Vec<[u8; 8]> = insns.into_iter().map(squall_bpf::Insn::octets).collect();
    let btf = if object.functions.len() > 1 { Some(load_btf(object)?) } else { None };
    let (prog_type, prog_flags, expected_attach_type) = match kind {
        Kind::Xdp { frags } => (6, if frags { HAS_FRAGS } else { 0 }, ATTACH_XDP),
        Kind::XdpOfInterface(_) => (6, HAS_FRAGS | BOUND, ATTACH_XDP),
        Kind::RawTracepoint => (17, 0, 0),
    };
    let prog_ifindex = if let Kind::XdpOfInterface(index) = kind { index } else { 0 };
    let info = btf.as_ref().map(|b| b.1.as_slice()).unwrap_or_default();
    // The license is GPL, because the kernel reserves several of the helpers for such programs.
    let mut attr = Attr {
        prog_type,
        insn_cnt: insns.len() as u32,
        insns: insns.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags,
        prog_name: name_of(&object.name),
        prog_ifindex,
        expected_attach_type,
        prog_btf_fd: btf.as_ref().map_or(0, |b| b.0.as_raw_fd() as u32),
        func_info_rec_size: if info.is_empty() { 0 } else { 8 },
        func_info: info.as_ptr() as u64,
        func_info_cnt: info.len() as u32,
        _rest: 0,
    };
    // SAFETY: all pointers are readable in the lengths given, and outlive the call.
    let error = match unsafe { bpf_fd(PROG_LOAD, attr) } {
        Ok(fd) => return Ok(fd),
        Err(error) => error,
    };
    if matches!(error.raw_os_error(), Some(libc::EPERM)) {
        return Err(explain_permission(error));
    }
    // A second attempt, with the verifier's log; the first one has no log because it takes time.
    let mut log = vec![0u8; 1 << 20];
    (attr.log_level, attr.log_size, attr.log_buf) = (1, log.len() as u32, log.as_mut_ptr() as u64);
    // SAFETY: as above, and the log is writable.
    if let Ok(fd) = unsafe { bpf_fd(PROG_LOAD, attr) } {
        return Ok(fd);
    }
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.trim_end_matches('\0').lines().collect();
    let last = lines[lines.len().saturating_sub(12)..].join("\n  ");
    // Does not use the error's own kind: the verifier rejects with EACCES, which would look like a
    // missing permission.
    Err(io::Error::other(format!("the kernel refuses program {}: {error}\n  {last}", object.name)))
}

fn load_btf(object: &Object) -> io::Result<(OwnedFd, Vec<[u32; 2]>)> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Attr {
        btf: u64,
        log_buf: u64,
        btf_size: u32,
        log_size: u32,
        log_level: u32,
        _rest: u32,
    }
    let (btf, info) = functions_btf(&object.functions);
    let attr = Attr {
        btf: btf.as_ptr() as u64,
        log_buf: 0,
        btf_size: btf.len() as u32,
        log_size: 0,
        log_level: 0,
        _rest: 0,
    };
    // SAFETY: the BTF is readable in the length given, and outlives the call.
    let fd = unsafe { bpf_fd(BTF_LOAD, attr) }.map_err(explain_permission)?;
    Ok((fd, info))
}

fn explain_permission(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "loading a BPF program needs CAP_BPF and CAP_NET_ADMIN in the first user namespace\n  \
             try sudo, or: sudo setcap cap_bpf,cap_net_admin,cap_net_raw,cap_perfmon+ep $(command \
             -v squall)",
        ),
        _ => error,
    }
}

fn name_of(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    let len = text.len().min(15);
    name[..len].copy_from_slice(&text.as_bytes()[..len]);
    name
}

/// # Safety
/// `attr` points at what `command` requires, and it lives over the call.
unsafe fn bpf<T: Copy>(command: c_int, mut attr: T) -> io::Result<c_int> {
    // SAFETY: guaranteed by the caller.
    unsafe { bpf_mut(command, &mut attr) }
}

/// # Safety
/// As [`bpf`].
unsafe fn bpf_mut<T: Copy>(command: c_int, attr: &mut T) -> io::Result<c_int> {
    let (attr, len): (*mut T, _) = (attr, mem::size_of::<T>());
    // SAFETY: `attr` is `len` octets; the caller guarantees the rest.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr, len) };
    sys::check(result as c_int)
}

/// # Safety
/// As [`bpf`]; `command` returns a descriptor.
unsafe fn bpf_fd<T: Copy>(command: c_int, attr: T) -> io::Result<OwnedFd> {
    // SAFETY: guaranteed by the caller.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use squall_bpf::{Asm, Cond, MapKind, Reg::*, Size, helper, xdp_action, xdp_md};

    use super::*;

    #[test]
    fn a_program_with_a_map_and_a_callback_is_loaded_and_run() {
        // Counts to 1000 in a callback, into a shared array; drops frames of at least 60 octets.
        let mut a = Asm::new("test");
        let count = a.map(MapSpec {
            name: "count".into(),
            kind: MapKind::Array,
            key_octets: 4,
            value_octets: 16,
            entries: 1,
            mmap: true,
        });
        let (step, short) = (a.label(), a.label());
        a.mov(R6, R1)
            .mov(R1, 1000)
            .load_function(R2, step)
            .mov(R3, 0)
            .mov(R4, 0)
            .call(helper::LOOP);
        a.load(Size::U32, R2, R6, xdp_md::DATA).load(Size::U32, R3, R6, xdp_md::DATA_END);
        a.add(R2, 60).jump_if(Cond::Gt, R2, R3, short).mov(R0, xdp_action::DROP).exit();
        a.bind(short).mov(R0, xdp_action::PASS).exit();
        a.function("step", step).load_map_value(R1, count, 8).mov(R2, 1).atomic_add(
            Size::U64,
            R1,
            0,
            R2,
        );
        a.mov(R0, 0).exit();
        let program = match Program::load(&a.finish(), Kind::Xdp { frags: true }) {
            Ok(program) => program,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return println!("SKIPPED: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let shared = program.map(0).mapped().unwrap();
        assert_eq!(program.run_once(&[0; 64]).unwrap(), 1);
        assert_eq!(program.run_once(&[0; 14]).unwrap(), 2);
        assert_eq!(shared.word(1).load(std::sync::atomic::Ordering::Relaxed), 2000);
        assert_eq!(shared.word(0).load(std::sync::atomic::Ordering::Relaxed), 0);
        assert!(program.id().unwrap() > 0);
    }

    #[test]
    fn the_error_has_the_verifiers_message() {
        let mut a = Asm::new("bad");
        a.load(Size::U32, R2, R1, xdp_md::DATA).load(Size::U32, R0, R2, 0).exit();
        match Program::load(&a.finish(), Kind::Xdp { frags: false }) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                println!("SKIPPED: {error}")
            }
            Err(error) => {
                assert!(error.to_string().contains("invalid access to packet"), "{error}")
            }
            Ok(_) => panic!("there is no test of the frame's end"),
        }
    }
}
