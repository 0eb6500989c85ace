package metadata

import (
	"context"
	"regexp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// digestBeginning matches a digest or a prefix of one that has at least eight digits. The algorithm may be missing.
var digestBeginning = regexp.MustCompile(`^(sha256:[0-9a-f]{8,64}|sha512:[0-9a-f]{8,128}|[0-9a-f]{8,128})$`)

// SearchManifests returns up to n manifests whose digest begins with text, in the repos on which the caller holds
// manifest.metadata.list. The text must have at least eight digits, and may begin with the algorithm. For any other
// text, the result is empty.
func (s *Service) SearchManifests(ctx context.Context, text string, n int) ([]imagedb.RepoManifest, error) {
	if !digestBeginning.MatchString(text) {
		return nil, nil
	}
	under, err := s.authz.Reach(ctx, resource.ManifestMetadataList)
	if err != nil || len(under) == 0 {
		return nil, err
	}
	prefixes := []string{text}
	if text[0] != 's' { // a digit comes first, so the algorithm is missing
		prefixes = []string{"sha256:" + text, "sha512:" + text}
	}
	var all []imagedb.RepoManifest
	for _, prefix := range prefixes {
		found, err := s.imageIndex.SearchManifests(ctx, store.Reach{Under: under}, prefix, n-len(all))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}
