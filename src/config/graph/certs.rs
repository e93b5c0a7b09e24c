//! Certificates that nodes are shown, where an upstream names one: it gets it, and gets the next one
//! when that changes.

use std::sync::{Arc, Weak};

use lockgate_plugin::Problem;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Applied, Graph};
use crate::config::kind::Key;
use crate::config::resource::{Ssl, Upstream as UpstreamResource};
use crate::upstream::{ClientCert, Upstream, UpstreamSpec};

/// See the module.
#[derive(Default)]
pub(super) struct ClientCerts {
    /// By the id of their `ssl`.
    held: FxHashMap<Arc<str>, ClientCert>,
    /// Who names them, whether they are there or not.
    users: FxHashMap<Arc<str>, Vec<Weak<Upstream>>>,
    /// Those that changed since they were given to their users.
    changed: FxHashSet<Arc<str>>,
    /// Resources that name one, since then.
    named: Vec<(Key, Arc<str>)>,
}

impl ClientCerts {
    /// An `ssl` as it is now.
    pub(super) fn take(&mut self, id: &Arc<str>, ssl: &Ssl) {
        match ssl.client_cert() {
            Some(cert) => {
                self.held.insert(Arc::clone(id), cert);
            }
            None => {
                self.held.remove(id);
            }
        }
        self.changed.insert(Arc::clone(id));
    }

    /// An `ssl` is gone.
    pub(super) fn forget(&mut self, id: &Arc<str>) {
        self.held.remove(id);
        self.changed.insert(Arc::clone(id));
    }

    /// An upstream with the certificate that it names.
    pub(super) fn spec(&mut self, owner: &Key, upstream: &UpstreamResource) -> UpstreamSpec {
        let mut spec = upstream.spec();
        if let Some(id) = &spec.client_cert_id {
            spec.client_cert = self.held.get(id).cloned();
            self.named.push((owner.clone(), Arc::clone(id)));
        }
        spec
    }

    /// Remembers a handle that names one.
    pub(super) fn note(&mut self, upstream: &Arc<Upstream>) {
        let Some(id) = &upstream.shape().spec.client_cert_id else {
            return;
        };
        let users = self.users.entry(Arc::clone(id)).or_default();
        users.retain(|held| held.strong_count() > 0 && !held.ptr_eq(&Arc::downgrade(upstream)));
        users.push(Arc::downgrade(upstream));
    }
}

impl Graph {
    /// Gives certificates that changed to whoever names them, and says which are named and missing.
    pub(super) fn settle_certs(&mut self, applied: &mut Applied) {
        for id in std::mem::take(&mut self.certs.changed) {
            let cert = self.certs.held.get(&id).cloned();
            let users = self.certs.users.remove(&id).unwrap_or_default();
            let mut stay = Vec::with_capacity(users.len());
            for upstream in users.iter().filter_map(Weak::upgrade) {
                let shape = upstream.shape();
                // It may name another one by now.
                if shape.spec.client_cert_id.as_deref() != Some(&*id) {
                    continue;
                }
                let mut spec = shape.spec.clone();
                spec.client_cert = cert.clone();
                upstream.update(spec);
                self.announce(&upstream);
                stay.push(Arc::downgrade(&upstream));
            }
            if cert.is_none() && !stay.is_empty() {
                let text = "upstreams name it, and it is not there, of type client and with status 1: \
                            none of their nodes is asked until it is";
                let mut problem = Problem::new("", text);
                problem.resource = format!("ssls/{id}");
                applied.warnings.push(problem);
            }
            if !stay.is_empty() {
                self.certs.users.insert(id, stay);
            }
        }
        for (owner, id) in std::mem::take(&mut self.certs.named) {
            if !self.certs.held.contains_key(&id) {
                let path = match owner.kind {
                    crate::config::kind::Kind::Upstream => "tls.client_cert_id",
                    _ => "upstream.tls.client_cert_id",
                };
                let text = format!(
                    "there is no ssl `{id}` of type client: no node is asked until there is"
                );
                let mut problem = Problem::new(path, text);
                problem.resource = owner.to_string();
                applied.warnings.push(problem);
            }
        }
    }
}
