//! Safe wrappers of the system calls that the rest of this crate makes.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr::NonNull,
    time::Duration,
};

use libc::{c_int, c_void};
use squall_bpf::classic::Instruction;
use squall_units::Nanos;

/// Turns -1 into the error of the last system call.
pub fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns freed memory to the system, where the allocator would keep it: glibc shrinks heaps only
/// at their end. Takes milliseconds per gigabyte, during which no other thread can allocate from
/// the same heap.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time from any thread (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// For a long-lived process, to be called before it has threads, so that [`trim_heap`] finds
/// whole pages to return. By default glibc spreads threads over eight arenas per CPU, and memory
/// still in use is scattered over all of them (after a configuration of 20,000 flows, 150 MB of 1
/// GB could not be returned; with two arenas, 10 MB).
pub fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes numbers only (mallopt(3)).
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Types for the kernel to read or fill.
///
/// # Safety
/// Every bit pattern must be a value of the type, and the type must contain no pointers.
pub unsafe trait Plain: Copy {}
// SAFETY: integers.
unsafe impl Plain for c_int {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: a struct of integers.
unsafe impl Plain for libc::tpacket_req3 {}
// SAFETY: a struct of integers.
unsafe impl Plain for libc::tpacket_stats_v3 {}
// SAFETY: a struct of integers.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: a struct of integers.
unsafe impl Plain for libc::sock_txtime {}
// SAFETY: a struct of integers.
unsafe impl Plain for libc::xdp_desc {}
// SAFETY: a struct of integers.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: integers.
unsafe impl<const N: usize> Plain for [u8; N] {}
// SAFETY: integers.
unsafe impl<const N: usize> Plain for [u32; N] {}
// SAFETY: integers.
unsafe impl<const N: usize> Plain for [u64; N] {}

#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    pub fn new(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
        // SAFETY: a new descriptor, which nothing else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn fd(&self) -> c_int {
        self.0.as_raw_fd()
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub fn set<T: Plain>(&self, level: c_int, name: c_int, value: T) -> io::Result<()> {
        let value: *const T = &value;
        // SAFETY: `value` is readable in the length given.
        check(unsafe {
            libc::setsockopt(self.fd(), level, name, value.cast(), mem::size_of::<T>() as u32)
        })
        .map(drop)
    }

    pub fn get<T: Plain>(&self, level: c_int, name: c_int, mut value: T) -> io::Result<T> {
        let mut len = mem::size_of::<T>() as u32;
        let out: *mut T = &mut value;
        // SAFETY: `out` is `len` writable octets, and any content is a `T`.
        check(unsafe { libc::getsockopt(self.fd(), level, name, out.cast(), &mut len) })?;
        Ok(value)
    }

    /// Attaches a socket filter that drops everything.
    pub fn attach_drop_all_filter(&self) -> io::Result<()> {
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        self.attach_filter(&[Instruction { code: RETURN, jt: 0, jf: 0, k: 0 }])
    }

    /// Replaces the current filter.
    pub fn attach_filter(&self, program: &[Instruction]) -> io::Result<()> {
        attach_filter(self.fd(), program)
    }

    /// Attaches the program that selects a socket of the fanout group for each frame, by its number
    /// in the group.
    pub fn attach_fanout(&self, program: &[Instruction]) -> io::Result<()> {
        set_program(self.fd(), (libc::SOL_PACKET, PACKET_FANOUT_DATA), program)
    }

    /// Binds a packet socket to an interface; `protocol` in host order, 0 to receive nothing.
    pub fn bind_packet(&self, index: u32, protocol: u16) -> io::Result<()> {
        // SAFETY: all zero is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = index as c_int;
        let (address, len): (*const libc::sockaddr_ll, _) =
            (&address, mem::size_of::<libc::sockaddr_ll>() as u32);
        // SAFETY: `address` is `len` readable octets.
        check(unsafe { libc::bind(self.fd(), address.cast(), len) }).map(drop)
    }

    /// Binds an AF_XDP socket to a device's queue. `shared`: another socket whose memory and rings
    /// it uses too.
    pub fn bind_xdp(
        &self,
        index: u32,
        queue: u32,
        flags: u16,
        shared: Option<&Socket>,
    ) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared.map_or(0, |s| s.fd() as u32),
        };
        let (address, len): (*const libc::sockaddr_xdp, _) =
            (&address, mem::size_of::<libc::sockaddr_xdp>() as u32);
        // SAFETY: `address` is `len` readable octets.
        check(unsafe { libc::bind(self.fd(), address.cast(), len) }).map(drop)
    }

    /// Makes the kernel process the socket's transmit ring; never waits.
    #[inline]
    pub fn kick_tx(&self) -> io::Result<()> {
        let nothing = std::ptr::null();
        // SAFETY: the buffer is empty.
        let sent =
            unsafe { libc::sendto(self.fd(), nothing, 0, libc::MSG_DONTWAIT, nothing.cast(), 0) };
        check(sent as c_int).map(drop)
    }

    /// Makes the kernel process the socket's fill ring, or poll the device; never waits.
    pub fn kick_rx(&self) -> io::Result<()> {
        // SAFETY: the buffer is empty.
        let got = unsafe { libc::recv(self.fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
        check(got as c_int).map(drop)
    }

    pub fn send(&self, octets: &[u8]) -> io::Result<usize> {
        // SAFETY: the slice is readable.
        let sent = unsafe { libc::send(self.fd(), octets.as_ptr().cast(), octets.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_with(buffer, 0)
    }

    /// Reads without waiting; `WouldBlock` if no data is available.
    pub fn recv_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_with(buffer, libc::MSG_DONTWAIT)
    }

    fn recv_with(&self, buffer: &mut [u8], flags: c_int) -> io::Result<usize> {
        // SAFETY: the slice is writable.
        let got = unsafe { libc::recv(self.fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
    }

    /// Takes the next message of the packet socket's error queue. Returns its origin and its code
    /// (`ee_origin`, `ee_code` of struct sock_extended_err); `None`: there is none.
    pub fn next_error(&self) -> io::Result<Option<[u8; 2]>> {
        // linux/if_packet.h
        const PACKET_TX_TIMESTAMP: c_int = 16;
        // Control messages of the kernel, aligned as struct cmsghdr.
        let mut control = [0u64; 16];
        // SAFETY: all zero is a valid `msghdr`: no name, no parts, no control data.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(&control) as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: `message` names writable control data and nothing else; the frame itself is cut
        // off.
        if unsafe { libc::recvmsg(self.fd(), &mut message, flags) } < 0 {
            let error = io::Error::last_os_error();
            let none = error.kind() == io::ErrorKind::WouldBlock;
            return if none { Ok(None) } else { Err(error) };
        }
        // struct cmsghdr: length, level and kind, in 16 octets; then struct sock_extended_err:
        // ee_errno in 4 octets, ee_origin, ee_type, ee_code.
        let [_, kind, error, ..] = control.map(u64::to_ne_bytes);
        let expected = [libc::SOL_PACKET, PACKET_TX_TIMESTAMP].map(c_int::to_ne_bytes).concat();
        Ok(Some(if kind[..] == expected[..] { [error[4], error[6]] } else { [0, 0] }))
    }

    /// Octets of sent frames (including the kernel's overhead) that have not left yet.
    pub fn unsent_octets(&self) -> io::Result<c_int> {
        let mut octets: c_int = 0;
        // SAFETY: TIOCOUTQ (SIOCOUTQ of a socket) writes one integer.
        check(unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ as _, &mut octets) })?;
        Ok(octets)
    }

    /// Sends an ethtool request: `buffer` starts with the command and gets the answer, for which it
    /// must have room.
    pub fn ethtool(&self, name: &str, buffer: &mut [u32]) -> io::Result<()> {
        let mut ifreq = EthtoolReq {
            name: interface_name(name)?,
            data: buffer.as_mut_ptr().cast(),
            _rest: [0; 16],
        };
        // SAFETY: the callers guarantee that `data` is writable and as large as the command's
        // struct.
        check(unsafe { libc::ioctl(self.fd(), libc::SIOCETHTOOL as _, &mut ifreq) }).map(drop)
    }

    /// Reads or sets an interface's timestamps (`request`: SIOCGHWTSTAMP or SIOCSHWTSTAMP).
    /// `config` is a struct hwtstamp_config, and gets the answer.
    pub fn stamping(
        &self,
        name: &str,
        request: libc::c_ulong,
        config: &mut [c_int; 3],
    ) -> io::Result<()> {
        let mut ifreq = EthtoolReq {
            name: interface_name(name)?,
            data: config.as_mut_ptr().cast(),
            _rest: [0; 16],
        };
        // SAFETY: both requests read and write a struct of three integers at `data`.
        check(unsafe { libc::ioctl(self.fd(), request as _, &mut ifreq) }).map(drop)
    }
}

/// Makes a TAP interface in the network namespace of the calling thread, without waiting reads, and
/// with the header of virtio before each frame. It ends with the descriptor.
pub fn open_tap(name: &str) -> io::Result<OwnedFd> {
    // SAFETY: the path is a C string.
    let fd = check(unsafe {
        libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC)
    })?;
    // SAFETY: `open` made it, and nothing else has it.
    let tap = unsafe { OwnedFd::from_raw_fd(fd) };
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let mut request = TunRequest { name: interface_name(name)?, flags: flags as _, _rest: [0; 22] };
    // SAFETY: the kernel reads and writes a struct ifreq, which has this size.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF as _, &mut request) })?;
    Ok(tap)
}

/// A struct ifreq for TUNSETIFF.
#[repr(C)]
struct TunRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    _rest: [u8; 22],
}

/// Waits at most `timeout` until one of `descriptors` is readable or its other end closed. Returns
/// the state of each, all false after a timeout or a signal.
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], timeout: Duration) -> Vec<bool> {
    let wait =
        |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut waits: Vec<_> = descriptors.iter().map(wait).collect();
    let ms = timeout.as_millis().min(c_int::MAX as u128) as c_int;
    // SAFETY: an array with the number of entries given, which are written.
    unsafe { libc::poll(waits.as_mut_ptr(), waits.len() as libc::nfds_t, ms) };
    waits.iter().map(|wait| wait.revents != 0).collect()
}

/// SO_ATTACH_FILTER; a program that the kernel rejects is [`io::ErrorKind::InvalidInput`].
pub fn attach_filter(fd: c_int, program: &[Instruction]) -> io::Result<()> {
    set_program(fd, (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER), program)
}

/// Whether a socket has room for `program`: the kernel translates it to eBPF and charges that to
/// net.core.optmem_max, which was 20 KiB before Linux 6.7: too little for the longest programs that
/// the kernel accepts.
pub fn has_room_for(program: &[Instruction]) -> io::Result<bool> {
    let socket = std::os::unix::net::UnixDatagram::unbound()?;
    match attach_filter(socket.as_raw_fd(), program) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => Ok(false),
        Err(error) => Err(error),
    }
}

/// linux/if_packet.h; the libc crate lacks it.
const PACKET_FANOUT_DATA: c_int = 22;

/// Sets an option, given by level and name, whose value is a program.
fn set_program(
    fd: c_int,
    (level, name): (c_int, c_int),
    program: &[Instruction],
) -> io::Result<()> {
    let plain = |i: &Instruction| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
    let mut program: Vec<_> = program.iter().map(plain).collect();
    let len =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let fprog = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    let (fprog, len): (*const libc::sock_fprog, _) =
        (&fprog, mem::size_of::<libc::sock_fprog>() as u32);
    // SAFETY: `fprog` and the instructions it points at outlive the call, which copies them.
    check(unsafe { libc::setsockopt(fd, level, name, fprog.cast(), len) }).map(drop)
}

#[repr(C)]
struct EthtoolReq {
    name: [u8; 16],
    data: *mut c_void,
    _rest: [u8; 16],
}

fn interface_name(name: &str) -> io::Result<[u8; 16]> {
    let mut padded = [0; 16];
    if name.len() >= padded.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    padded[..name.len()].copy_from_slice(name.as_bytes());
    Ok(padded)
}

/// Memory shared with the kernel.
#[derive(Debug)]
pub struct Map {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Map {}
// SAFETY: the map only gives addresses: each access through one has a safety comment of its own.
unsafe impl Sync for Map {}

impl Map {
    pub fn new(socket: &Socket, len: usize) -> io::Result<Self> {
        Self::at_offset(socket, len, 0)
    }

    /// Maps one of the socket's rings, which `offset` selects.
    pub fn at_offset(socket: &Socket, len: usize, offset: u64) -> io::Result<Self> {
        Self::make(len, libc::MAP_SHARED | libc::MAP_POPULATE, socket.fd(), offset as libc::off_t)
    }

    /// Zeroed memory without a file; `huge`: on pages of 2 MiB, if the machine has reserved some.
    pub fn anonymous(len: usize, huge: bool) -> io::Result<Self> {
        let huge =
            if huge { libc::MAP_HUGETLB | libc::MAP_HUGE_2MB | libc::MAP_POPULATE } else { 0 };
        Self::make(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge, -1, 0)
    }

    fn make(len: usize, flags: c_int, fd: c_int, offset: libc::off_t) -> io::Result<Self> {
        let (anywhere, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { libc::mmap(anywhere, len, protection, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: NonNull::new(base.cast()).expect("mmap gives no null page"), len })
    }

    /// The address of the octet at `offset`.
    ///
    /// # Panics
    /// If `len` octets from there are not within the mapping.
    pub fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "outside of the ring");
        // SAFETY: within the mapping, by the assertion.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this value's mapping, and nothing borrowed from it outlives it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Prefetches `len` octets from `at` on; octets outside of the slice are left out. Does nothing on
/// machines without a known instruction for it.
#[inline]
pub fn prefetch(octets: &[u8], at: usize, len: usize) {
    const LINE: usize = 64;
    let (at, end) = (at.min(octets.len()), at.saturating_add(len).min(octets.len()));
    #[cfg(target_arch = "x86_64")]
    for line in (at - at % LINE..end).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = octets[line..].as_ptr().cast();
        // SAFETY: every x86-64 CPU has it, and it has no effect that the program could observe.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, end, LINE);
}

/// Reading of a clock that may not exist, in nanoseconds.
pub fn try_clock(clock: libc::clockid_t) -> io::Result<i64> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable.
    check(unsafe { libc::clock_gettime(clock, &mut t) })?;
    Ok(t.tv_sec * 1_000_000_000 + t.tv_nsec)
}

/// Reading of `clock` in nanoseconds.
pub fn clock(clock: libc::clockid_t) -> i64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable; the clocks asked for exist everywhere, so that the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

pub fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: takes no pointers; changes the calling thread's namespaces, as the caller wants.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

pub fn setns(fd: &impl AsRawFd, kind: c_int) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::setns(fd.as_raw_fd(), kind) }).map(drop)
}

/// Makes the files of /proc/self belong to the process's user again.
pub fn set_dumpable() {
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) };
}

pub fn uid() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::getuid() }
}

pub fn euid() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

pub fn egid() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::getegid() }
}

pub fn kill(pid: u32, signal: c_int) {
    // SAFETY: takes no pointers. An error means that the process has ended, which is fine.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Returns 0 in the child. The parent must have only one thread; so has the child.
pub fn fork() -> io::Result<u32> {
    // SAFETY: the parent has a single thread, so no lock is held by a thread that the child lacks.
    check(unsafe { libc::fork() }).map(|pid| pid as u32)
}

/// Makes the kernel kill this process when its parent ends.
pub fn set_parent_death_signal() -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }).map(drop)
}

/// Sets the name that `ps` shows.
pub fn name_process(name: &str) {
    let name = std::ffi::CString::new(name).unwrap_or_default();
    // SAFETY: `name` ends with a zero and outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Detaches the process: own session, name and default signals, no terminal, no output to the
/// parent's.
pub fn become_daemon(name: &str) {
    // SAFETY: takes no pointers.
    unsafe { libc::setsid() };
    name_process(name);
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: the default action needs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the path ends with a zero.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    if null >= 0 {
        for stdio in 0..=2 {
            // SAFETY: both are descriptors; the old one is replaced.
            unsafe { libc::dup2(null, stdio) };
        }
    }
    let _ = std::env::set_current_dir("/");
}

pub fn wait_forever() {
    loop {
        // SAFETY: takes no pointers; returns after a handled signal.
        unsafe { libc::pause() };
    }
}

/// Skips the parent's exit handlers.
pub fn exit_now() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(1) }
}

pub fn reap(pid: u32) {
    // SAFETY: a null status is allowed.
    unsafe { libc::waitpid(pid as libc::pid_t, std::ptr::null_mut(), 0) };
}

/// Keeps mounts that are made from now on in this mount namespace.
pub fn make_mounts_private() -> io::Result<()> {
    let (none, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_SLAVE);
    // SAFETY: the strings end with zeros; a change of propagation reads no others.
    check(unsafe { libc::mount(c"none".as_ptr(), c"/".as_ptr(), none, flags, none.cast()) })
        .map(drop)
}

pub fn mount_sysfs() -> io::Result<()> {
    let (sysfs, sys) = (c"sysfs".as_ptr(), c"/sys".as_ptr());
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: the strings end with zeros; sysfs needs no data.
    check(unsafe { libc::mount(sysfs, sys, sysfs, flags, std::ptr::null()) }).map(drop)
}

/// Id of the calling thread, for signals.
pub fn thread_id() -> c_int {
    // Calls it by its number, because packages are linked for glibc 2.28, and gettid() came with
    // 2.30. SAFETY: takes and changes nothing.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// Moves the calling thread to CPUs that are allowed to the process but not to the thread, if there
/// are any: a thread must not stay on the CPU to which the worker that started it is bound.
pub fn move_to_other_cpus() {
    let read = |of: c_int| {
        // SAFETY: all zero is an empty set.
        let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
        // SAFETY: `set` is writable in the length given.
        let done =
            unsafe { libc::sched_getaffinity(of, mem::size_of::<libc::cpu_set_t>(), &mut set) };
        (done == 0).then_some(set)
    };
    // SAFETY: takes and changes nothing.
    let process = unsafe { libc::getpid() };
    let (Some(own), Some(all)) = (read(0), read(process)) else { return };
    // SAFETY: all zero is an empty set.
    let mut others: libc::cpu_set_t = unsafe { mem::zeroed() };
    let mut any = false;
    for cpu in 0..libc::CPU_SETSIZE as usize {
        // SAFETY: below CPU_SETSIZE.
        let (is_own, is_there) =
            unsafe { (libc::CPU_ISSET(cpu, &own), libc::CPU_ISSET(cpu, &all)) };
        if is_there && !is_own {
            // SAFETY: below CPU_SETSIZE.
            unsafe { libc::CPU_SET(cpu, &mut others) };
            any = true;
        }
    }
    if any {
        // SAFETY: `others` is readable in the length given. On failure the thread stays where it
        // is.
        unsafe { libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), &others) };
    }
}

/// Sends `signal` to a thread of this process; nothing happens if it is gone.
pub fn signal_thread(thread: c_int, signal: c_int) {
    // SAFETY: to this process only; the signal has a handler that does nothing.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
}

/// A timer that periodically signals the thread that made it, unless it is reset in time. The
/// kernel sends the signal even while no thread of this process runs.
pub struct Alarm {
    timer: libc::timer_t,
    every: Nanos,
}

// SAFETY: the timer's id comes from the kernel or the C library, and all threads may use it.
unsafe impl Send for Alarm {}

impl Alarm {
    /// # Errors
    /// The kernel provides no timer.
    pub fn new(signal: c_int, every: Nanos) -> io::Result<Self> {
        // SAFETY: all zero is a valid `sigevent`.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        (event.sigev_signo, event.sigev_notify) = (signal, libc::SIGEV_THREAD_ID);
        event.sigev_notify_thread_id = thread_id();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both are valid, and `timer` is writable.
        check(unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) })?;
        let alarm = Self { timer, every };
        alarm.reset();
        Ok(alarm)
    }

    /// Restarts the period.
    pub fn reset(&self) {
        let (tv_sec, tv_nsec) =
            ((self.every.0 / 1_000_000_000) as _, (self.every.0 % 1_000_000_000) as _);
        let every = libc::timespec { tv_sec, tv_nsec };
        let when = libc::itimerspec { it_interval: every, it_value: every };
        // SAFETY: the timer exists until `self` is dropped; the old setting is not requested.
        unsafe { libc::timer_settime(self.timer, 0, &when, std::ptr::null_mut()) };
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: deleted once, and not used again.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Delivers `signal` to the calling thread even if the process has blocked it: threads inherit the
/// mask.
pub fn unblock(signal: c_int) {
    // SAFETY: all zero is valid memory for a set; it is emptied next.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is writable.
    unsafe { libc::sigemptyset(&mut set) };
    // SAFETY: as above.
    unsafe { libc::sigaddset(&mut set, signal) };
    // SAFETY: `set` is initialized; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

/// Makes `signal` interrupt system calls (EINTR) and have no other effect, unless the process
/// already has a handler for it.
pub fn make_interrupting(signal: c_int, once: &std::sync::Once) {
    extern "C" fn nothing(_: c_int) {}
    once.call_once(|| {
        // SAFETY: all zero is a valid `sigaction`: the default, no flags, an empty mask.
        let mut old: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: `old` is writable; nothing is changed.
        unsafe { libc::sigaction(signal, std::ptr::null(), &mut old) };
        if old.sa_sigaction != libc::SIG_DFL && old.sa_sigaction != libc::SIG_IGN {
            return;
        }
        // SA_RESTART is not set, because the interrupted call must return.
        let handler: extern "C" fn(c_int) = nothing;
        // SAFETY: as above.
        let mut new: libc::sigaction = unsafe { mem::zeroed() };
        new.sa_sigaction = handler as libc::sighandler_t;
        // SAFETY: the handler is safe at any moment, as it does nothing.
        unsafe { libc::sigaction(signal, &new, std::ptr::null_mut()) };
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Once;

    use super::*;

    /// A program may block all signals and wait for them in one thread.
    #[test]
    fn a_signal_that_the_process_blocks_still_ends_a_system_call() {
        static ONCE: Once = Once::new();
        // SAFETY: all zero is valid memory for a set; it is filled next.
        let mut all: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: `all` is writable.
        unsafe { libc::sigfillset(&mut all) };
        // SAFETY: `all` is initialized; only the mask of this test's thread changes.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut()) };
        let (tell, thread) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            make_interrupting(libc::SIGURG, &ONCE);
            unblock(libc::SIGURG);
            tell.send(thread_id()).unwrap();
            // SAFETY: waits for no descriptor.
            unsafe { libc::poll(std::ptr::null_mut(), 0, 60_000) }
        });
        let thread = thread.recv().unwrap();
        while !sleeper.is_finished() {
            signal_thread(thread, libc::SIGURG);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(sleeper.join().unwrap(), -1, "interrupted");
    }
}
