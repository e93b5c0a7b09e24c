//! Memory that two processes can count in: an anonymous file, mapped by both.
//!
//! A process that is replaced and its successor serve side by side for some seconds. In the same words
//! they keep every limit together; a copy would let what is left of each pass twice.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lockgate_limit::{Engine, Slot};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Why memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// The system does not give it.
    #[error("{doing}: {source}")]
    System {
        /// What failed.
        doing: &'static str,
        /// Why.
        source: rustix::io::Errno,
    },
    /// It has another size than it should have.
    #[error("the memory has another size: lockgate.limit.table_bytes was changed")]
    Size,
    /// Whoever has it may make it smaller, which would end this process.
    #[error("the memory may be made smaller")]
    Unsealed,
}

/// See the module.
pub(crate) struct Memory {
    file: OwnedFd,
    words: &'static [Slot],
    secret: [u64; 4],
}

impl Memory {
    /// New memory for a table of this size. It takes none until it is used.
    pub(super) fn new(table_bytes: usize) -> Result<Memory, Unusable> {
        let words = Engine::words_for(table_bytes);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("lockgate-limits", flags)
            .map_err(|source| failed("no anonymous file", source))?;
        rustix::fs::ftruncate(&file, length(words))
            .map_err(|source| failed("the anonymous file cannot grow", source))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(|source| failed("the anonymous file cannot be sealed", source))?;
        Memory::map(file, words)
    }

    /// The memory of another process, for a table of this size.
    pub(super) fn given(file: OwnedFd, table_bytes: usize) -> Result<Memory, Unusable> {
        let words = Engine::words_for(table_bytes);
        let seals = rustix::fs::fcntl_get_seals(&file)
            .map_err(|source| failed("it is no anonymous file", source))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(Unusable::Unsealed);
        }
        let stat = rustix::fs::fstat(&file)
            .map_err(|source| failed("the anonymous file has no size", source))?;
        if u64::try_from(stat.st_size) != Ok(length(words)) {
            return Err(Unusable::Size);
        }
        Memory::map(file, words)
    }

    #[allow(unsafe_code)]
    fn map(file: OwnedFd, words: usize) -> Result<Memory, Unusable> {
        let bytes = words * size_of::<Slot>();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place where nothing is.
        let place = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        let place =
            place.map_err(|source| failed("the anonymous file cannot be mapped", source))?;
        // SAFETY: the file has this length and is sealed, so every word is there; it begins with a page;
        // all bits are a number; the mapping is never taken back; and whoever else has the file changes
        // it through the same atomic words, which this processor does without a lock.
        let words = unsafe { std::slice::from_raw_parts(place.cast::<Slot>().cast_const(), words) };
        Ok(Memory {
            file,
            words,
            secret: [0; 4],
        })
    }

    /// The words.
    pub(super) fn words(&self) -> &'static [Slot] {
        self.words
    }

    /// The file, for another process.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The same, with the secret of the keys that are counted in it.
    pub(super) fn of(self, secret: [u64; 4]) -> Memory {
        Memory { secret, ..self }
    }

    /// The secret of the keys.
    pub(super) fn secret(&self) -> [u64; 4] {
        self.secret
    }
}

fn failed(doing: &'static str, source: rustix::io::Errno) -> Unusable {
    Unusable::System { doing, source }
}

fn length(words: usize) -> u64 {
    (words * size_of::<Slot>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_memory_is_refused() {
        let told = |file: OwnedFd, bytes| {
            let given = Memory::given(file, bytes);
            given
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        let memory = Memory::new(1 << 16).unwrap();
        let again = || memory.file.try_clone().unwrap();
        assert_eq!(told(again(), 1 << 16), "");
        assert!(told(again(), 1 << 17).contains("table_bytes was changed"));
        let plain = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(told(plain.into(), 1 << 16).contains("no anonymous file"));
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = rustix::fs::memfd_create("test", flags).unwrap();
        assert!(told(open, 1 << 16).contains("may be made smaller"));
    }
}
