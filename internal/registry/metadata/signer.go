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

// CreateSigner adds a signer to a group. The caller needs policies.policy.create there.
func (s *Service) CreateSigner(ctx context.Context, parent resource.UID, v registry.Signer) (none registry.Signer, _ error) {
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

// checkTrust returns an error if signatures of a signer could never be verified.
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

// ListSigners returns a page of the signers that the caller holds policies.policy.list on.
func (s *Service) ListSigners(ctx context.Context, f resource.Filter, p page.Params) (page.Page[registry.Signer], error) {
	return authz.List(ctx, s.authz, s.pages, signerdb.SignerList, resource.PolicyList, f, p, s.signers.Signers)
}

// DeleteSigner removes a signer: no signature of it counts any more. The caller needs policies.policy.delete on it.
func (s *Service) DeleteSigner(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.PolicyDelete, uid, s.signers.DeleteSigner)
}

// Signatures are the signatures of an image.
type Signatures struct {
	Digest  string       // of the image
	Source  resource.UID // the group whose signers count; "" if there are none
	All     []images.Verified
	Signers []string // the names of those who have signed it, in order
}

// Signatures returns the signatures that are attached to the image that a digest or a tag names, or to indexes of the repo
// that list it, and which of them count in its group. The caller needs repo.list and referrers.list on the repo. Whoever may
// see an image may know the names of those who have signed it.
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
	all, err := s.images.Signatures(ctx, repo, m.Digest, signers, false)
	out := Signatures{Digest: m.Digest, All: all, Signers: names(all)}
	if len(signers) > 0 {
		out.Source = signers[0].Home()
	}
	return out, err
}

// SignedBy is Registry.SignedBy. It does not authorize the caller.
func (s *Service) SignedBy(
	ctx context.Context, repo resource.UID, digest string, group resource.UID,
) (signer, why string, _ error) {
	return s.images.SignedBy(ctx, repo, digest, group)
}

// names returns the names of those whose signatures count, each once.
func names(all []images.Verified) (out []string) {
	for _, v := range all {
		if v.Signer != nil {
			out = append(out, v.Signer.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
