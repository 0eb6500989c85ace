package registryapi

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
)

func signerOf(s registry.Signer) *pb.Signer {
	return &pb.Signer{
		Uid: string(s.UID), Name: s.Name, Description: s.Description, Key: s.Key, Issuer: s.Issuer, Subject: s.Subject,
		SubjectPattern: s.SubjectPattern, TrustedRoot: s.Root, CreateTime: wire.Time(s.CreateTime),
	}
}

// listedSignerOf converts a signer to a message without its trusted root, because a page of
// trusted roots would be large.
func listedSignerOf(s registry.Signer) *pb.Signer {
	s.Root = ""
	return signerOf(s)
}

// readSigner copies the fields that clients may set from p to s.
func readSigner(p *pb.Signer, s *registry.Signer) error {
	s.Name, s.Description, s.Key, s.Root = p.GetName(), p.GetDescription(), p.GetKey(), p.GetTrustedRoot()
	s.Issuer, s.Subject, s.SubjectPattern = p.GetIssuer(), p.GetSubject(), p.GetSubjectPattern()
	return nil
}

func (s *server) CreateSigner(ctx context.Context, r *pb.CreateSignerRequest) (*pb.Signer, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetSigner(), readSigner, s.Registry.CreateSigner, signerOf)
}

func (s *server) GetSigner(ctx context.Context, r *pb.GetSignerRequest) (*pb.Signer, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.GetSigner, signerOf)
}

func (s *server) DeleteSigner(ctx context.Context, r *pb.DeleteSignerRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Registry.DeleteSigner)
}

func (s *server) ListSigners(ctx context.Context, r *pb.ListSignersRequest) (*pb.ListSignersResponse, error) {
	f := resource.Filter{UIDs: wire.UIDFilter(r.GetUidp()), Name: r.GetName()}
	p, err := wire.List(ctx, r, f, s.Registry.ListSigners, listedSignerOf)
	return &pb.ListSignersResponse{Signers: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}

func (s *server) GetSignatures(ctx context.Context, r *pb.GetSignaturesRequest) (*pb.Signatures, error) {
	repo, err := resource.ParseUID("repo_uid", r.GetRepoUid())
	if err != nil {
		return nil, err
	}
	got, err := s.Registry.Signatures(ctx, repo, r.GetReference())
	if err != nil {
		return nil, err
	}
	return &pb.Signatures{
		Digest: got.Digest, Verified: len(got.Signers) > 0, Signers: got.Signers, SourceUid: string(got.Source),
		Signatures: wire.Convert(got.All, signatureOf),
	}, nil
}

func signatureOf(v images.Verified) *pb.Signature {
	p := &pb.Signature{Manifest: v.Manifest, Index: v.Index, Issuer: v.Issuer, Subject: v.Subject, Problem: v.Problem}
	if v.Signer != nil {
		p.Signer, p.SignerUid = v.Signer.Name, string(v.Signer.UID)
	}
	return p
}
