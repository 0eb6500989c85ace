package e2e_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// theReplication returns a replication to a registry that is never asked, because it copies only on request.
func theReplication(name string) *ocipb.Replication {
	return &ocipb.Replication{
		Name: name, Address: "https://registry.example.org",
		Trigger: ocipb.ReplicationTrigger_REPLICATION_TRIGGER_MANUAL,
	}
}

// replication creates a replication and returns its UID.
func (w *world) replication(t *testing.T, group, name string) string {
	t.Helper()
	in := &ocipb.CreateReplicationRequest{Parent: group, Replication: theReplication(name)}
	return must[*ocipb.Replication](t, w.overGRPC, w.Token, in).GetUid()
}

// pendingReplication creates a replication to a registry that refuses connections, and waits until at least three tags
// are pending.
func (w *world) pendingReplication(t *testing.T, group string) string {
	t.Helper()
	r := &ocipb.Replication{Name: "pending", Address: "http://127.0.0.1:1"}
	uid := must[*ocipb.Replication](t, w.overGRPC, w.Token,
		&ocipb.CreateReplicationRequest{Parent: group, Replication: r}).GetUid()
	procUntil(t, "tags are pending, and the target is known to fail", func() bool {
		r := must[*ocipb.Replication](t, w.overGRPC, w.Token, &ocipb.GetReplicationRequest{Uid: uid})
		return r.GetPending() >= 3 && r.GetLastError() != ""
	})
	return uid
}

func badReplications(y shelf) map[string]badRequest {
	table := map[string]badRequest{}
	create := func(name, field string, change func(*ocipb.Replication)) {
		r := theReplication("far")
		change(r)
		table[name] = badRequest{field, &ocipb.CreateReplicationRequest{Parent: y.folder, Replication: r}}
	}
	create("a name in capitals", "name", func(r *ocipb.Replication) { r.Name = "Far" })
	for value, address := range map[string]string{
		"nothing":                 "",
		"a path":                  "https://a.example/v2",
		"a password":              "https://u:p@a.example",
		"another scheme":          "ftp://a.example",
		"the metadata of a cloud": "http://169.254.169.254",
		"a private address":       "https://10.0.0.1",
		"no encryption":           "http://a.example",
	} {
		create("address with "+value, "address", func(r *ocipb.Replication) { r.Address = address })
	}
	create("a realm inside", "realm", func(r *ocipb.Replication) { r.Realm = "https://192.168.1.1/token" })
	for value, path := range map[string]string{
		"capitals": "Acme", "dots": "../x", "a slash at the end": "a/", "a query": "a?x",
		"too many": strings.Repeat("a", 200),
	} {
		create("a path with "+value, "path", func(r *ocipb.Replication) { r.Path = path })
	}
	for value, pattern := range map[string]string{
		"nothing": "", "only a mark": "!", "half a class": "[", "a NUL": "a\x00",
	} {
		create("repos of "+value, "repos", func(r *ocipb.Replication) { r.Repos = []string{pattern} })
		create("tags of "+value, "tags", func(r *ocipb.Replication) { r.Tags = []string{pattern} })
	}
	create("tags with a slash", "tags", func(r *ocipb.Replication) { r.Tags = []string{"a/b"} })
	create("an unknown trigger", "trigger", func(r *ocipb.Replication) { r.Trigger = 9 })
	create("an interval without a schedule", "interval", func(r *ocipb.Replication) {
		r.Interval = durationpb.New(1e12)
	})
	create("a schedule without an interval", "interval", func(r *ocipb.Replication) {
		r.Trigger = ocipb.ReplicationTrigger_REPLICATION_TRIGGER_SCHEDULE
	})
	create("credentials without a password", "credentials", func(r *ocipb.Replication) { r.Credentials = "robot" })
	create("an identity that is none", "identity", func(r *ocipb.Replication) { r.Identity = "robot" })
	return table
}
