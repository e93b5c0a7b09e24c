//! Certificates by server name.
//!
//! A name is looked up exactly, then as `*.rest` (one label), then `*`. Of
//! several entries for a name the first one wins. Source: APISIX's `ssl` resource.

use std::collections::HashMap;
use std::sync::Arc;

use openssl::pkey::{PKey, Private};
use openssl::x509::X509;

/// A parsed certificate chain with its key.
pub struct CertPair {
    /// The server's certificate.
    pub leaf: X509,
    /// The rest of the chain, in order.
    pub chain: Vec<X509>,
    /// The private key of the leaf.
    pub key: PKey<Private>,
}

impl CertPair {
    /// Parses PEM texts.
    ///
    /// # Errors
    /// In words: which of the two does not parse, or that they do not belong together.
    pub fn parse(cert: &str, key: &str) -> Result<CertPair, String> {
        let mut chain = X509::stack_from_pem(cert.as_bytes())
            .map_err(|e| format!("failed to parse cert: {e}"))?;
        if chain.is_empty() {
            return Err("failed to parse cert: no certificate in the text".to_owned());
        }
        let leaf = chain.remove(0);
        let key = PKey::private_key_from_pem(key.as_bytes())
            .map_err(|e| format!("failed to parse key: {e}"))?;
        let public = leaf
            .public_key()
            .map_err(|e| format!("failed to parse cert: {e}"))?;
        if !key.public_eq(&public) {
            return Err("the key does not belong to the certificate".to_owned());
        }
        Ok(CertPair { leaf, chain, key })
    }
}

/// What a server name is served with.
pub struct SniEntry {
    /// The `ssl` resource's id.
    pub id: Arc<str>,
    /// One pair, or several of different key types.
    pub pairs: Vec<CertPair>,
    /// TLS versions the resource allows, such as `TLSv1.2`; `None` for the listener's own.
    pub protocols: Option<Vec<String>>,
}

/// Certificates by server name. A clone is as cheap as its number of names.
#[derive(Clone, Default)]
pub struct SniTable {
    /// Lower-case names; wildcards as `*.rest`.
    names: HashMap<Box<str>, Vec<Arc<SniEntry>>>,
}

impl SniTable {
    /// Adds an entry for a name.
    pub fn insert(&mut self, name: &str, entry: Arc<SniEntry>) {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.names.entry(name.into()).or_default().push(entry);
    }

    /// The entry for the name a client asks for.
    pub fn find(&self, name: &str) -> Option<&Arc<SniEntry>> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let wildcard = name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let lookup = |name: &str| self.names.get(name).and_then(|entries| entries.first());
        lookup(&name)
            .or_else(|| wildcard.as_deref().and_then(lookup))
            .or_else(|| lookup("*"))
    }

    /// Names and ids in a stable order, for comparing tables.
    pub fn describe(&self) -> Vec<String> {
        let ids = |entries: &[Arc<SniEntry>]| {
            let ids: Vec<&str> = entries.iter().map(|entry| &*entry.id).collect();
            ids.join(", ")
        };
        let line = |name: &str, entries: &[Arc<SniEntry>]| format!("sni {name}: {}", ids(entries));
        let mut lines: Vec<String> = self.names.iter().map(|(n, e)| line(n, e)).collect();
        lines.sort();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str) -> Arc<SniEntry> {
        Arc::new(SniEntry {
            id: id.into(),
            pairs: Vec::new(),
            protocols: None,
        })
    }

    #[test]
    fn exact_then_one_label_then_anything() {
        let mut table = SniTable::default();
        for name in ["a.test", "*.test", "*.B.test."] {
            table.insert(name, entry(name));
        }
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(table.find(name).map(|e| &*e.id), expected, "{name}");
        };
        check("a.test", Some("a.test"));
        check("A.TEST.", Some("a.test"));
        check("z.test", Some("*.test"));
        check("x.b.test", Some("*.B.test."));
        check("y.x.b.test", None);
        check("test", None);
    }

    #[test]
    fn the_first_of_two_wins_and_a_star_is_last() {
        let mut table = SniTable::default();
        table.insert("*", entry("any"));
        table.insert("a.test", entry("first"));
        table.insert("a.test", entry("second"));
        assert_eq!(table.find("a.test").map(|e| &*e.id), Some("first"));
        assert_eq!(table.find("q").map(|e| &*e.id), Some("any"));
    }
}
