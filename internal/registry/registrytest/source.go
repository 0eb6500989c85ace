package registrytest

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// NewSigner returns a signer of a group.
func NewSigner(group resource.UID, name string) registry.Signer {
	return registry.Signer{UID: group.NewChild(), Name: name, Key: "key", CreateTime: iamtest.Epoch,
		UpdateTime: iamtest.Epoch}
}

// AddSigner inserts a signer.
func AddSigner(t testing.TB, s *SignerStore, group resource.UID, name string) registry.Signer {
	t.Helper()
	v := NewSigner(group, name)
	testkit.Must(t, s.InsertSigner(t.Context(), v))
	return v
}

// NewUpstream returns an upstream of a group.
func NewUpstream(group resource.UID) registry.Upstream {
	return registry.Upstream{
		UID: group.NewChild(), Name: "docker.io", Address: "https://registry-1.docker.io", FreshFor: time.Hour,
		Credentials: resource.Secret{Sealed: []byte("sealed")}, CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch,
	}
}

// AddUpstream inserts an upstream.
func AddUpstream(t testing.TB, s *SourceStore, group resource.UID) registry.Upstream {
	t.Helper()
	u := NewUpstream(group)
	testkit.Must(t, s.InsertUpstream(t.Context(), u))
	return u
}

// NewMirroredImage returns an image whose layer may be missing in the repo.
func NewMirroredImage(word string) registry.Manifest {
	m := NewImage(word)
	m.ArtifactType = registry.ImageConfigs[0]
	m.Needs[0].Optional = true
	return m
}

// NewFollower returns a repo that is synced from another repo, source.
func NewFollower(group resource.UID, name string, source resource.UID) registry.Repo {
	r := NewRepo(group, name)
	r.Sync = &registry.SyncConfig{Source: string(source), ExpirationTime: iamtest.Epoch}
	return r
}

// AddFollower inserts a repo that is synced from another repo, source.
func AddFollower(t testing.TB, s *SourceStore, group resource.UID, name string, source resource.UID) registry.Repo {
	t.Helper()
	r := NewFollower(group, name, source)
	testkit.Must(t, s.InsertFollower(t.Context(), r, iamtest.Alice))
	return r
}

// BeginSync begins a sync run for a repo that is due.
func BeginSync(t testing.TB, s *SourceStore, repo resource.UID) sourcedb.FollowRun {
	t.Helper()
	run, ok, err := s.TakeFollow(t.Context(), repo, "me")
	if err != nil || !ok {
		t.Fatalf("take %s: %t, %v", repo, ok, err)
	}
	return run
}

// NewReplication returns a replication of a group.
func NewReplication(group resource.UID, name string) registry.Replication {
	return registry.Replication{
		UID: group.NewChild(), Name: name, Address: "https://registry.example.org", Trigger: registry.OnPush,
		SetBy: iamtest.Alice, Credentials: resource.Secret{Sealed: []byte("sealed")}, CreateTime: iamtest.Epoch,
		UpdateTime: iamtest.Epoch,
	}
}

// AddReplication inserts a replication.
func AddReplication(t testing.TB, s *SourceStore, group resource.UID, name string) registry.Replication {
	t.Helper()
	r := NewReplication(group, name)
	testkit.Must(t, s.InsertReplication(t.Context(), r))
	return r
}

// BeginReplication begins an attempt of a replication that is due.
func BeginReplication(t testing.TB, s *SourceStore, uid resource.UID) sourcedb.ReplicationRun {
	t.Helper()
	run, ok, err := s.BeginReplication(t.Context(), uid, "me")
	if err != nil || !ok {
		t.Fatalf("take %s: %t, %v", uid, ok, err)
	}
	return run
}
