package iam

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// maxAtPath is the greatest number of resources that ResolvePath returns. Only few kinds can have several resources at
// one path.
const maxAtPath = 20

// maxPath is the greatest length of a path in bytes: store.MaxNames names of 1,024 bytes, with their slashes.
const maxPath = store.MaxNames * 1025

// A pathKind is a kind of resources that have paths.
type pathKind struct {
	label string
	// mayGet returns nil if the caller may get the resource.
	mayGet func(s *Service, ctx context.Context, uid resource.UID) error
}

// pathKinds are the kinds of resources that have paths, by their tables.
var pathKinds = map[string]pathKind{
	"groups":             {"group", requires(resource.GroupsList)},
	"identities":         {"identity", (*Service).mayGetIdentity},
	"identity_providers": {"identity provider", requires(resource.IdentityProvidersList)},
	"repos":              {"repo", requires(resource.RepoList)},
	"roles":              {"role", (*Service).mayGetRole},
}

func requires(want resource.Capability) func(*Service, context.Context, resource.UID) error {
	return func(s *Service, ctx context.Context, uid resource.UID) error { return s.authz.Require(ctx, want, uid) }
}

// ResolvePath returns the resources of a kind at a path of names, root first, that the caller may get. It returns
// fault.NotFound if there is no such resource, and also if the caller may not get it. The caller need not be allowed
// to get the groups along the path: a caller with a role on a folder knows its path, because it is part of the
// references of images. A path of one name also finds the people whom it names: see PeopleCalled.
func (s *Service) ResolvePath(ctx context.Context, kind, path string) ([]resource.UID, error) {
	if _, err := authz.RequireCaller(ctx); err != nil {
		return nil, err
	}
	k, names, err := readPath(kind, path)
	if err != nil {
		return nil, err
	}
	found, err := s.store.FindByPath(ctx, kind, names, maxAtPath)
	if err != nil {
		return nil, err
	}
	var seen []resource.UID
	for _, uid := range found {
		switch err := k.mayGet(s, ctx, uid); {
		case err == nil:
			seen = append(seen, uid)
		case !errors.Is(err, fault.PermissionDenied):
			return nil, err
		}
	}
	if kind == "identities" && len(names) == 1 {
		people, err := s.PeopleCalled(ctx, names[0])
		if err != nil {
			return nil, err
		}
		for _, p := range people {
			if !slices.Contains(seen, p.UID) {
				seen = append(seen, p.UID)
			}
		}
	}
	if len(seen) == 0 {
		return nil, fault.Missing(k.label, strings.Join(names, "/"))
	}
	return seen, nil
}

// readPath checks the arguments of ResolvePath.
func readPath(kind, path string) (k pathKind, names []string, _ error) {
	k, known := pathKinds[kind]
	names = strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case !known:
		return k, nil, fault.Field("kind", "must be one of %s",
			strings.Join(slices.Sorted(maps.Keys(pathKinds)), ", "))
	case path == "":
		return k, nil, fault.Field("path", "is required")
	case slices.Contains(names, ""):
		return k, nil, fault.Field("path", "has an empty name")
	case len(path) > maxPath || len(names) > store.MaxNames:
		return k, nil, fault.Field("path", "must have at most %d names and %d bytes", store.MaxNames, maxPath)
	case strings.ContainsRune(path, 0):
		return k, nil, fault.Field("path", "must not contain a null character")
	}
	return k, names, nil
}
