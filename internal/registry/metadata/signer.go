package metadata

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
	"github.com/holdfast-dev/holdfast/internal/registry/signature"
	"github.com/holdfast-dev/holdfast/internal/registry/signerdb"
)

// CreateSigner adds a signer to a group. The caller needs policies.policy.create on the group.
func (s *Service) CreateSigner(
	ctx context.Context, parent resource.UID, v registry.Signer,
) (none registry.Signer, _ error) {
	if err := s.authz.Require(ctx, resource.PolicyCreate, parent); err != nil {
		return none, err
	}
	v.UID, v.CreateTime = parent.NewChild(), s.store.Time()
	v.UpdateTime = v.CreateTime
	v.Key, v.Root = strings.TrimSpace(v.Key), strings.TrimSpace(v.Root)
	if err := v.Validate(); err != nil {
		return none, err
	}
	if err := s.checkTrust(v); err != nil {
		return none, err
	}
	return v, s.signers.InsertSigner(ctx, v)
}

// checkTrust returns fault.InvalidArgument if the key or root of a signer cannot verify any signature.
func (s *Service) checkTrust(v registry.Signer) error {
	if v.Key != "" {
		if _, err := signature.ParseKey(v.Key); err != nil {
			return fault.Field("key", "%s", err)
		}
		return nil
	}
	if v.Root != "" {
		if _, err := signature.ParseRoot([]byte(v.Root)); err != nil {
			return fault.Field("trusted_root", "%s", err)
		}
		return nil
	}
	if len(s.cfg.TrustedRoot) == 0 {
		return fault.Field("trusted_root", "is required for an identity, because the server has none")
	}
	return nil
}

// GetSigner returns a signer. The caller needs policies.policy.list on it.
func (s *Service) GetSigner(ctx context.Context, uid resource.UID) (registry.Signer, error) {
	return authz.Get(ctx, s.authz, resource.PolicyList, uid, s.signers.Signer)
}

// ListSigners returns a page of the signers on which the caller holds policies.policy.list.
func (s *Service) ListSigners(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[registry.Signer], error) {
	return authz.List(ctx, s.authz, s.pages, signerdb.SignerList, resource.PolicyList, f, p, s.signers.Signers)
}

// DeleteSigner deletes a signer. Its signatures are no longer trusted. The caller needs policies.policy.delete on it.
func (s *Service) DeleteSigner(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.PolicyDelete, uid, s.signers.DeleteSigner)
}

// Signatures are the signatures of an image.
type Signatures struct {
	Digest  string       // digest of the image
	Source  resource.UID // group whose signers are trusted for the image; "" if there are none
	All     []images.Verified
	Signers []string // names of the trusted signers that signed the image, sorted
}

// Signatures returns the signatures that are attached to an image or to indexes of the repo that list the image, and
// the names of the trusted signers that made them. reference is a digest or a tag. The caller needs repo.list and
// referrers.list on the repo. Callers who may see an image may see the names of its signers.
func (s *Service) Signatures(ctx context.Context, repo resource.UID, reference string) (none Signatures, _ error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.ReferrersList); err != nil {
		return none, err
	}
	if !resource.ValidDigest(reference) && !registry.ValidTag(reference) {
		return none, fault.Field("reference", "is neither a digest nor a tag")
	}
	m, err := s.store.StatManifest(ctx, repo, reference)
	if err != nil {
		return none, err
	}
	signers, err := s.signers.SignersOver(ctx, repo.Parent())
	if err != nil {
		return none, err
	}
	found, err := s.images.Signatures(ctx, repo, m.Digest, signers, false)
	out := Signatures{Digest: m.Digest, All: found, Signers: names(found)}
	if len(signers) > 0 {
		out.Source = signers[0].Home()
	}
	return out, err
}

// SignedBy is images.Reader.SignedBy. It does not authorize the caller.
func (s *Service) SignedBy(
	ctx context.Context, repo resource.UID, digest string, group resource.UID,
) (signer, why string, _ error) {
	return s.images.SignedBy(ctx, repo, digest, group)
}

// DescribesImage is images.Reader.DescribesImage. It does not authorize the caller.
func (s *Service) DescribesImage(
	ctx context.Context, repo resource.UID, m registry.Manifest, public bool,
) (bool, error) {
	return s.images.DescribesImage(ctx, repo, m, public)
}

// names returns the names of the trusted signers that made signatures, without duplicates.
func names(all []images.Verified) (out []string) {
	for _, v := range all {
		if v.Signer != nil {
			out = append(out, v.Signer.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
