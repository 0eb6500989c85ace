package v1

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/v2/accessapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

type identities struct {
	pb.UnsafeIdentitiesServer
	iam *iam.Service
}

var (
	identityOf        = writer[*pb.Identity](accessapi.IdentityOf)
	readAllOfIdentity = reader[*pb.Identity](accessapi.ReadIdentity)
)

// readIdentity copies the fields that clients may set from p to i. It keeps the
// company and the display name, which version 1 does not have.
func readIdentity(p *pb.Identity, i *resource.Identity) error {
	if _, err := wire.ReadTime("static.expiration", p.GetStatic().GetExpiration()); err != nil {
		return err
	}
	company, display := i.Company, i.DisplayName
	err := readAllOfIdentity(p, i)
	i.Company, i.DisplayName = company, display
	return err
}

// warned returns a function like identityOf that also sends the warnings about the
// identity.
func warned(ctx context.Context) func(resource.Identity) *pb.Identity {
	return func(i resource.Identity) *pb.Identity {
		wire.Warn(ctx, i.Warnings())
		return identityOf(i)
	}
}

func (s identities) Create(ctx context.Context, r *pb.CreateIdentityRequest) (*pb.Identity, error) {
	return wire.Create(ctx, "parent_id", r.GetParentId(), r.GetIdentity(), readIdentity, s.iam.CreateIdentity, warned(ctx))
}

func (s identities) Update(ctx context.Context, r *pb.Identity) (*pb.Identity, error) {
	return wire.Replace(ctx, "id", r.GetId(), r, readIdentity, s.iam.UpdateIdentity, warned(ctx))
}

func (s identities) List(ctx context.Context, r *pb.IdentityFilter) (*pb.IdentityList, error) {
	f := resource.Filter{UIDs: place(r.GetUidp(), r.GetId())}
	items, err := everything(ctx, f, s.iam.ListIdentities, identityOf)
	return &pb.IdentityList{Items: items}, err
}

// Lookup returns only the ID of a person who has not signed in yet, or whom the
// caller may not read.
func (s identities) Lookup(ctx context.Context, r *pb.LookupRequest) (*pb.Identity, error) {
	uid, err := s.iam.LookupIdentity(ctx, r.GetIssuer(), r.GetSubject(), "")
	if err != nil {
		return nil, err
	}
	i, err := s.iam.GetIdentity(ctx, uid)
	if errors.Is(err, fault.NotFound) || errors.Is(err, fault.PermissionDenied) {
		return &pb.Identity{Id: string(uid)}, nil
	}
	return identityOf(i), err
}

func (s identities) Delete(ctx context.Context, r *pb.DeleteIdentityRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.iam.DeleteIdentity)
}
