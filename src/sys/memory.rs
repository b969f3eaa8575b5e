//! What this process keeps of memory, and what it gives back.

/// Keeps memory that was given back for the next call, within bounds: what is taken from the kernel anew is cleared page by page, and a
/// call on a file of a few hundred kilobytes takes and gives as much several times. Small pieces are kept where they are quickest, and not
/// gathered each time that something beside much free memory is given back.
pub fn keep_memory() {
    #[cfg(target_env = "gnu")]
    for (option, bytes) in [(libc::M_MMAP_THRESHOLD, 4 << 20), (libc::M_TRIM_THRESHOLD, 4 << 20), (libc::M_MXFAST, 0)] {
        // SAFETY: these options take a number and no pointer.
        unsafe { libc::mallopt(option, bytes) };
    }
}

/// Gives back what is in memory of the program's own code: what of it is run again is found again in the page cache, and most of what a
/// start runs is never run again. A server that waits for calls holds a third of what it held.
pub fn forget_code() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it gives back whole pages of free memory, and takes no pointer.
    unsafe {
        libc::malloc_trim(0)
    };
    const EXECUTE: u32 = 1;
    const WRITE: u32 = 2;
    // SAFETY: it looks up a number that the kernel gave this process, and touches no memory of ours.
    let given = |kind| unsafe { libc::getauxval(kind) };
    let (headers, count, size) = (given(libc::AT_PHDR), given(libc::AT_PHNUM), given(libc::AT_PHENT));
    if headers == 0 || usize::try_from(size) != Ok(size_of::<libc::Elf64_Phdr>()) {
        return;
    }
    let (Ok(at), Ok(count)) = (usize::try_from(headers), usize::try_from(count)) else { return };
    // SAFETY: they stay mapped, aligned and unwritten as long as the process lives, and their size is the one asked for just above.
    let headers = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<libc::Elf64_Phdr>(at), count) };
    let Some(own) = headers.iter().find(|header| header.p_type == libc::PT_PHDR) else { return };
    // SAFETY: this name asks for a number and touches no memory.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
    for header in headers {
        // What may be written holds what the file does not.
        if header.p_type != libc::PT_LOAD || header.p_flags & EXECUTE == 0 || header.p_flags & WRITE != 0 || page == 0 {
            continue;
        }
        let begin = at as u64 - own.p_vaddr + header.p_vaddr;
        let (first, end) = (begin.next_multiple_of(page), (begin + header.p_filesz) / page * page);
        if let (Ok(first), Ok(length)) = (usize::try_from(first), usize::try_from(end.saturating_sub(first))) {
            // SAFETY: whole pages of code that the kernel has mapped from the file and nobody has written to: each is read again from there
            // when it is run.
            unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(first), length, libc::MADV_DONTNEED) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the code of the program that runs is mapped, and how many kilobytes of it are resident.
    fn code() -> (std::ops::Range<u64>, u64) {
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begin = maps.lines().position(|line| line.contains(" r-xp ") && line.ends_with(exe.to_str().unwrap())).unwrap();
        let mut lines = maps.lines().skip(begin);
        let (from, to) = lines.next().unwrap().split_once(' ').unwrap().0.split_once('-').unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        (address(from)..address(to), resident.trim().trim_end_matches(" kB").parse().unwrap())
    }

    #[test]
    fn code_that_is_given_back_is_found_again() {
        // Other tests run beside this one, and take their code back at once: it is measured in a process with one thread.
        let Ok(Some(child)) = super::super::fork_errand() else {
            let (range, _) = code();
            let memory = std::fs::File::open("/proc/self/mem").unwrap();
            let mut all = vec![0; usize::try_from(range.end - range.start).unwrap()];
            std::os::unix::fs::FileExt::read_exact_at(&memory, &mut all, range.start).unwrap();
            let before = code().1;
            forget_code();
            let after = code().1;
            // What has run since has been found again.
            super::super::exit_now(if before == (range.end - range.start) / 1024 && after < before / 4 { 0 } else { 1 })
        };
        let status = nix::sys::wait::waitpid(child, None).unwrap();
        assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0));
    }
}
