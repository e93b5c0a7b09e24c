//! Who may use the Admin API.

use std::net::IpAddr;

use ipnet::IpNet;
use openssl::sha::sha256;
use serde_json::json;

use crate::endpoint::Answer;
use crate::settings::AdminSettings;

/// What the key is called that is made at the first start.
const GENERATED: &str = "admin.key";

/// See the module.
pub(super) struct Access {
    allow: Vec<IpNet>,
    /// `None` when no key is asked for.
    keys: Option<Vec<Key>>,
}

/// What a key is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Everything.
    Admin,
    /// To read, private keys excepted.
    Viewer,
}

/// What a key is needed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It changes nothing.
    Read,
    /// It may.
    Write,
}

struct Key {
    name: String,
    /// Of digests the comparison takes the same time wherever they differ.
    digest: [u8; 32],
    role: Role,
}

impl Access {
    /// The rules; `generated` is the key for when none is configured.
    pub(super) fn new(settings: &AdminSettings, generated: Option<&str>) -> Access {
        let own = settings.keys.iter().map(|key| Key {
            name: key.name.clone(),
            digest: sha256(key.key.as_bytes()),
            role: if key.viewer {
                Role::Viewer
            } else {
                Role::Admin
            },
        });
        let made = generated.map(|key| Key {
            name: GENERATED.to_owned(),
            digest: sha256(key.as_bytes()),
            role: Role::Admin,
        });
        Access {
            allow: settings.allow.clone(),
            keys: settings.key_required.then(|| own.chain(made).collect()),
        }
    }

    /// Whether a client may talk to the listener at all.
    pub(super) fn admits(&self, client: Option<IpAddr>) -> bool {
        let client = client.map(|ip| ip.to_canonical());
        self.allow.is_empty()
            || client.is_some_and(|ip| self.allow.iter().any(|net| net.contains(&ip)))
    }

    /// The role of a key and its name, if it allows a use; the answer when it does not.
    pub(super) fn check(
        &self,
        key: Option<&str>,
        use_of: Use,
    ) -> Result<(Role, Option<String>), Answer> {
        let Some(keys) = &self.keys else {
            return Ok((Role::Admin, None));
        };
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            return Err(refused("missing apikey"));
        };
        let digest = sha256(key.as_bytes());
        // All of them, whichever fits.
        let fitting = keys
            .iter()
            .filter(|known| openssl::memcmp::eq(&known.digest, &digest));
        // One that is listed for both roles has both.
        let most = |a: &'_ Key, b: &'_ Key| a.role == Role::Admin || b.role != Role::Admin;
        match fitting.reduce(|a, b| if most(a, b) { a } else { b }) {
            None => Err(refused("wrong apikey")),
            Some(key) if key.role == Role::Viewer && use_of == Use::Write => {
                Err(refused("invalid method for role viewer"))
            }
            Some(key) => {
                let name = Some(key.name.clone()).filter(|name| !name.is_empty());
                Ok((key.role, name))
            }
        }
    }
}

fn refused(description: &str) -> Answer {
    let body = json!({"error_msg": "failed to check token", "description": description});
    Answer::json(401, body.to_string()).unversioned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AdminKey;

    fn settings(keys: &[(&str, bool)], allow: &[&str]) -> AdminSettings {
        AdminSettings {
            listen: ([127, 0, 0, 1], 9180).into(),
            allow: allow.iter().map(|net| net.parse().unwrap()).collect(),
            keys: keys
                .iter()
                .map(|(key, viewer)| AdminKey {
                    name: format!("name of {key}"),
                    key: (*key).to_owned(),
                    viewer: *viewer,
                })
                .collect(),
            key_required: true,
            cors: true,
            tls: None,
            stream_mode: false,
        }
    }

    #[test]
    fn keys_and_roles() {
        let access = Access::new(
            &settings(&[("adm", false), ("view", true)], &[]),
            Some("made"),
        );
        let check = |key: Option<&str>, use_of: Use, expected: &str| {
            let got = match access.check(key, use_of) {
                Ok((_, name)) => name.unwrap_or_default(),
                Err(answer) => answer.body,
            };
            assert!(got.contains(expected), "{key:?}: {got:?}");
        };
        check(Some("adm"), Use::Write, "name of adm");
        check(Some("made"), Use::Write, "admin.key");
        check(Some("view"), Use::Read, "name of view");
        check(Some("view"), Use::Write, "invalid method for role viewer");
        check(Some("adm "), Use::Read, "wrong apikey");
        check(Some(""), Use::Read, "missing apikey");
        check(None, Use::Read, "missing apikey");
        let mut open = settings(&[("adm", false)], &[]);
        open.key_required = false;
        let role = |access: &Access, key: Option<&str>, use_of: Use| {
            access.check(key, use_of).ok().map(|(role, _)| role)
        };
        let open = Access::new(&open, None);
        assert_eq!(role(&open, None, Use::Write), Some(Role::Admin));
        let both = Access::new(
            &settings(&[("a", true), ("a", false), ("v", true)], &[]),
            None,
        );
        assert_eq!(role(&both, Some("a"), Use::Read), Some(Role::Admin));
        assert_eq!(role(&both, Some("v"), Use::Read), Some(Role::Viewer));
    }

    #[test]
    fn networks() {
        let access = Access::new(&settings(&[], &["127.0.0.0/24", "::1/128"]), None);
        let check = |ip: &str, expected: bool| {
            assert_eq!(access.admits(ip.parse().ok()), expected, "{ip}");
        };
        check("127.0.0.1", true);
        check("127.0.1.1", false);
        check("::ffff:127.0.0.9", true);
        check("::1", true);
        check("10.0.0.1", false);
        assert!(!access.admits(None));
        assert!(Access::new(&settings(&[], &[]), None).admits(None));
    }
}
