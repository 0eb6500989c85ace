package registryapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// replicationOf converts a replication to a message, without its credentials and its status.
func replicationOf(r registry.Replication) *pb.Replication {
	p := &pb.Replication{
		Uid: string(r.UID), Name: r.Name, Address: r.Address, Path: r.Path, Realm: r.Realm, Repos: r.Repos, Tags: r.Tags,
		SignedOnly: r.SignedOnly, Trigger: pb.ReplicationTrigger(r.Trigger), FollowDeletions: r.FollowDeletions,
		Paused: r.Paused, Identity: r.Identity, HasCredentials: !r.Credentials.Empty(), SetByUid: string(r.SetBy),
		CreateTime: wire.Time(r.CreateTime), UpdateTime: wire.Time(r.UpdateTime),
	}
	if r.Interval != 0 {
		p.Interval = durationpb.New(r.Interval)
	}
	return p
}

// eventReplicationOf converts a replication to the body of an event, which does not name the identity that set it up.
func eventReplicationOf(r registry.Replication) *pb.Replication {
	r.SetBy = ""
	return replicationOf(r)
}

// withStatus adds the status to the message of a replication. It adds none if the replication does not exist, because
// the request was only validated, or because it was deleted a moment ago.
func (s *server) withStatus(ctx context.Context, r registry.Replication) (*pb.Replication, error) {
	p := replicationOf(r)
	t, err := s.Registry.ReplicationStatus(ctx, r)
	if errors.Is(err, fault.NotFound) {
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	p.State, p.Pending, p.Failed = pb.ReplicationState(t.State), &t.Pending, &t.Failed
	p.OldestPendingTime, p.SuccessTime, p.DueTime = wire.Time(t.OldestTime), wire.Time(t.SuccessTime), wire.Time(t.DueTime)
	p.LastError, p.LastErrorTime = t.Error, wire.Time(t.ErrorTime)
	return p, nil
}

// stated returns get with the status of the replication that it returns.
func (s *server) stated(
	get func(context.Context, resource.UID) (registry.Replication, error),
) func(context.Context, resource.UID) (*pb.Replication, error) {
	return func(ctx context.Context, uid resource.UID) (*pb.Replication, error) {
		r, err := get(ctx, uid)
		if err != nil {
			return nil, err
		}
		return s.withStatus(ctx, r)
	}
}

func same(p *pb.Replication) *pb.Replication { return p }

// readReplication copies the fields that clients may set from p to r, with the credentials in plain text.
func readReplication(p *pb.Replication, r *registry.Replication) error {
	r.Name, r.Address, r.Path, r.Realm = p.GetName(), p.GetAddress(), p.GetPath(), p.GetRealm()
	r.Repos, r.Tags, r.SignedOnly = p.GetRepos(), p.GetTags(), p.GetSignedOnly()
	r.Trigger, r.Interval = registry.Trigger(p.GetTrigger()), 0
	r.FollowDeletions, r.Paused, r.Identity = p.GetFollowDeletions(), p.GetPaused(), p.GetIdentity()
	r.Credentials = resource.Secret{Plain: p.GetCredentials()}
	if d := p.GetInterval(); d != nil {
		if err := d.CheckValid(); err != nil {
			return fault.Field("interval", "is not a duration")
		}
		r.Interval = d.AsDuration().Truncate(time.Millisecond)
	}
	return nil
}

func (s *server) CreateReplication(ctx context.Context, r *pb.CreateReplicationRequest) (*pb.Replication, error) {
	var created registry.Replication
	_, err := wire.Create(ctx, "parent", r.GetParent(), r.GetReplication(), readReplication, s.Registry.CreateReplication,
		func(r registry.Replication) *pb.Replication {
			created = r
			return nil
		})
	if err != nil {
		return nil, err
	}
	return s.withStatus(ctx, created)
}

func (s *server) GetReplication(ctx context.Context, r *pb.GetReplicationRequest) (*pb.Replication, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.stated(s.Registry.GetReplication), same)
}

func (s *server) ListReplications(
	ctx context.Context, r *pb.ListReplicationsRequest,
) (*pb.ListReplicationsResponse, error) {
	var failed error
	p, err := wire.List(ctx, r, wire.Filter(r), s.Registry.ListReplications,
		func(r registry.Replication) *pb.Replication {
			m, err := s.withStatus(ctx, r)
			failed = cmp.Or(failed, err)
			return m
		})
	return &pb.ListReplicationsResponse{
		Replications: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, cmp.Or(err, failed)
}

func (s *server) UpdateReplication(ctx context.Context, r *pb.UpdateReplicationRequest) (*pb.Replication, error) {
	if err := wire.Require("replication", r.GetReplication()); err != nil {
		return nil, err
	}
	update := func(ctx context.Context, uid resource.UID) (registry.Replication, error) {
		return s.Registry.UpdateReplication(ctx, uid, func(v *registry.Replication) error { return changeReplication(r, v) })
	}
	return wire.Get(ctx, "uid", r.GetReplication().GetUid(), s.stated(update), same)
}

// changeReplication applies r to v. While the mask is applied, the message contains a random placeholder instead of
// the stored credentials. If the placeholder is still there afterwards, the credentials are kept.
func changeReplication(r *pb.UpdateReplicationRequest, v *registry.Replication) error {
	placeholder, credentials := rand.Text(), v.Credentials
	p := replicationOf(*v)
	p.Credentials = placeholder
	if err := wire.Apply(r.GetUpdateMask(), r.GetReplication(), p); err != nil {
		return err
	}
	if err := readReplication(p, v); err != nil {
		return err
	}
	if v.Credentials.Plain == placeholder {
		v.Credentials = credentials
	}
	return nil
}

func (s *server) DeleteReplication(ctx context.Context, r *pb.DeleteReplicationRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Registry.DeleteReplication)
}

func (s *server) RunReplication(ctx context.Context, r *pb.RunReplicationRequest) (*pb.Replication, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.stated(s.Registry.RunReplication), same)
}

func replicatedTagOf(g registry.ReplicatedTag) *pb.ReplicationTag {
	return &pb.ReplicationTag{
		RepoUid: string(g.Repo), Tag: g.Name, CopiedDigest: g.Digest, QueueTime: wire.Time(g.QueueTime),
		DueTime: wire.Time(g.DueTime), Error: g.Error,
	}
}

func (s *server) PreviewReplication(
	ctx context.Context, r *pb.PreviewReplicationRequest,
) (*pb.PreviewReplicationResponse, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.PreviewReplication,
		func(p registry.ReplicationPreview) *pb.PreviewReplicationResponse {
			return &pb.PreviewReplicationResponse{
				Tags: wire.Convert(p.Tags, replicatedTagOf), Complete: p.Complete, Examined: p.Examined,
			}
		})
}

func (s *server) ListReplicationTags(
	ctx context.Context, r *pb.ListReplicationTagsRequest,
) (*pb.ListReplicationTagsResponse, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if r.GetUid() == "" && r.GetPageToken() != "" {
		err = nil // the page token contains the UID
	}
	if err != nil {
		return nil, err
	}
	tags, err := s.Registry.ListReplicatedTags(ctx, uid, wire.Params(r))
	p := wire.PageOf(ctx, tags, replicatedTagOf)
	return &pb.ListReplicationTagsResponse{
		Tags: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}
