package accessapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
)

// withDirectory adds the state of a provider's directory to the message of the provider.
func withDirectory(
	ctx context.Context, s *scim.Service, uid resource.UID, p *pb.IdentityProvider,
) (*pb.IdentityProvider, error) {
	d, err := s.Directory(ctx, uid)
	if err != nil {
		return nil, err
	}
	p.Scim = &pb.IdentityProvider_SCIM{
		Enabled: d.Enabled, EndpointUrl: s.Endpoint(uid), TokenExpireTime: wire.Time(d.ExpireTime),
		PreviousTokenExpireTime: wire.Time(d.PreviousExpireTime),
		CredentialState:         pb.IdentityProvider_SCIM_CredentialState(s.State(d)), Etag: d.ETag(),
	}
	return p, nil
}

// lifeOf reads the requested life of a token.
func lifeOf(expires *timestamppb.Timestamp, never bool) (life scim.Life, _ error) {
	life.Never = never
	if expires == nil {
		return life, nil
	}
	if expires.CheckValid() != nil {
		return life, fault.Field("expire_time", "is not a valid time")
	}
	life.Expires = expires.AsTime()
	return life, nil
}

// GenerateScimToken creates the first token of a directory. field is the name of the request's field with the UID.
func GenerateScimToken(
	ctx context.Context, s *scim.Service, field string, r *pb.GenerateScimTokenRequest,
) (*pb.GenerateScimTokenResponse, error) {
	uid, err := resource.ParseUID(field, r.GetIdentityProviderUid())
	if err != nil {
		return nil, err
	}
	life, err := lifeOf(r.GetExpireTime(), r.GetNeverExpires())
	if err != nil {
		return nil, err
	}
	token, d, err := s.GenerateToken(ctx, uid, life)
	if err != nil {
		return nil, err
	}
	return &pb.GenerateScimTokenResponse{
		Token: token, EndpointUrl: s.Endpoint(uid), ExpireTime: wire.Time(d.ExpireTime), IdentityProviderUid: string(uid),
		Etag: d.ETag(),
	}, nil
}

// RegenerateScimToken replaces the token of a directory. field is the name of the request's field with the UID.
func RegenerateScimToken(
	ctx context.Context, s *scim.Service, field string, r *pb.RegenerateScimTokenRequest,
) (*pb.RegenerateScimTokenResponse, error) {
	uid, err := resource.ParseUID(field, r.GetIdentityProviderUid())
	if err != nil {
		return nil, err
	}
	life, err := lifeOf(r.GetExpireTime(), r.GetNeverExpires())
	if err != nil {
		return nil, err
	}
	var overlap *time.Duration
	if o := r.GetOverlap(); o != nil {
		if o.CheckValid() != nil {
			return nil, fault.Field("overlap", "is not a valid duration")
		}
		d := o.AsDuration()
		overlap = &d
	}
	token, d, err := s.RegenerateToken(ctx, uid, life, overlap, r.GetEtag())
	if err != nil {
		return nil, err
	}
	out := &pb.RegenerateScimTokenResponse{
		Token: token, EndpointUrl: s.Endpoint(uid), ExpireTime: wire.Time(d.ExpireTime), IdentityProviderUid: string(uid),
		Etag: d.ETag(), PreviousTokenExpireTime: wire.Time(d.PreviousExpireTime),
	}
	if overlap != nil {
		out.RequestedOverlap = durationpb.New(*overlap)
	}
	return out, nil
}

// RevokeScimToken makes the tokens of a directory void. field is the name of the request's field with the UID.
func RevokeScimToken(
	ctx context.Context, s *scim.Service, field string, r *pb.RevokeScimTokenRequest,
) (*pb.RevokeScimTokenResponse, error) {
	return wire.Get(ctx, field, r.GetIdentityProviderUid(), s.RevokeToken, revokedOf)
}

func revokedOf(d resource.Directory) *pb.RevokeScimTokenResponse {
	return &pb.RevokeScimTokenResponse{
		IdentityProviderUid: string(d.Provider), Etag: d.ETag(), Enabled: d.Enabled, RevokeTime: wire.Time(d.RevokeTime),
	}
}

// SetScimEnabled enables or disables a directory. field is the name of the request's field with the UID.
func SetScimEnabled(
	ctx context.Context, s *scim.Service, field string, r *pb.SetScimEnabledRequest,
) (*pb.SetScimEnabledResponse, error) {
	return wire.Get(ctx, field, r.GetIdentityProviderUid(),
		func(ctx context.Context, uid resource.UID) (resource.Directory, error) {
			return s.SetEnabled(ctx, uid, r.GetEnabled(), r.GetEtag())
		}, enabledOf)
}

func enabledOf(d resource.Directory) *pb.SetScimEnabledResponse {
	return &pb.SetScimEnabledResponse{IdentityProviderUid: string(d.Provider), Enabled: d.Enabled, Etag: d.ETag()}
}

// uidField is the field of the requests about directories that has the UID of the provider.
const uidField = "identity_provider_uid"

func (s *server) GenerateScimToken(
	ctx context.Context, r *pb.GenerateScimTokenRequest,
) (*pb.GenerateScimTokenResponse, error) {
	return GenerateScimToken(ctx, s.Directories, uidField, r)
}

func (s *server) RegenerateScimToken(
	ctx context.Context, r *pb.RegenerateScimTokenRequest,
) (*pb.RegenerateScimTokenResponse, error) {
	return RegenerateScimToken(ctx, s.Directories, uidField, r)
}

func (s *server) RevokeScimToken(
	ctx context.Context, r *pb.RevokeScimTokenRequest,
) (*pb.RevokeScimTokenResponse, error) {
	return RevokeScimToken(ctx, s.Directories, uidField, r)
}

func (s *server) SetScimEnabled(
	ctx context.Context, r *pb.SetScimEnabledRequest,
) (*pb.SetScimEnabledResponse, error) {
	return SetScimEnabled(ctx, s.Directories, uidField, r)
}
