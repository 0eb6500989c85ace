package policy

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
)

const (
	maxImages    = 100 // maximum number of images in one check
	maxPlatforms = 10
)

// A Decision says whether an image could be pulled.
type Decision int

// The decisions, with the numbers of the API.
const (
	Allowed Decision = 1 + iota
	Refused
	Unknown
)

// An ImageCheck is the decision about an image.
type ImageCheck struct {
	Image    string // the reference, as in the request
	Decision Decision
	Reason   string // why it is not allowed
	Repo     resource.UID
	Digest   string
	Platform string // the refused platform, if the image is an index
}

// reasons why nothing is known about an image
const (
	notReference = "this is not a reference of an image"
	elsewhere    = "the image belongs to another registry"
	notFound     = "there is no such image, or you may not pull it; " +
		"an image of an upstream is known after it was pulled for the first time"
	noPlatform = "the index has no image for these platforms"
	noDigest   = "the digest of the image was not reported"
)

// Listings lists the images of an index. The registry implements it.
type Listings interface {
	// Listed returns the images that an index lists, directly or through other indexes, with the platforms that the
	// indexes name.
	Listed(ctx context.Context, repo resource.UID, index registry.Manifest) ([]registry.Variant, error)
}

// An ImageChecker says whether images could be pulled.
type ImageChecker struct {
	host     string // host of the registry
	gate     *Gate
	repos    *registrydb.Store
	listings Listings
	authz    *authz.Checker
	turns    *fairlimit.Limiter
}

// NewImageChecker returns an ImageChecker for the registry with a host.
func NewImageChecker(
	host string, g *Gate, repos *registrydb.Store, l Listings, c *authz.Checker,
) *ImageChecker {
	return &ImageChecker{host, g, repos, l, c, fairlimit.New(fairlimit.Limits{
		Total: 16, PerTenant: 4, QueuedPerTenant: 64, Wait: 5 * time.Second,
		Busy: fairlimit.Busy("too many checks of images are running"),
	})}
}

// Check returns for each image whether the caller could pull it now. For an index, it considers the images for the
// platforms, or all images if there are no platforms.
func (c *ImageChecker) Check(ctx context.Context, images, platforms []string) (checks []ImageCheck, _ error) {
	caller, ok := authz.CallerFrom(ctx)
	switch {
	case !ok:
		return nil, fault.New(fault.Unauthenticated, "Unauthenticated: a token is required")
	case len(images) == 0 || len(images) > maxImages:
		return nil, fault.Field("images", "must have between 1 and %d references", maxImages)
	case len(platforms) > maxPlatforms:
		return nil, fault.Field("platforms", "must have at most %d platforms", maxPlatforms)
	}
	done, err := c.turn(ctx, caller)
	if err != nil {
		return nil, err
	}
	defer done()
	for _, image := range images {
		check, err := c.check(ctx, image, platforms)
		if err != nil {
			return nil, err
		}
		check.Image = image
		checks = append(checks, check)
	}
	return checks, nil
}

// turn waits until a check of the caller may begin. The caller must call done when it ends.
func (c *ImageChecker) turn(ctx context.Context, caller authz.Caller) (done func(), _ error) {
	return c.turns.Acquire(ctx, c.repos.Tenant(ctx, caller.Identity))
}

// A RunningImage is an image that a client has reported to run.
type RunningImage struct {
	Image    string // the reference with which it was started
	Digest   string // "" if it is not known
	Platform string // "" if it is not known
}

// CheckRunning returns for each image whether the caller could pull it now, by its digest. The tag does not count,
// because it may have moved since the image was started.
func (c *ImageChecker) CheckRunning(ctx context.Context, images []RunningImage) ([]ImageCheck, error) {
	if len(images) == 0 {
		return nil, nil
	}
	caller, _ := authz.CallerFrom(ctx)
	done, err := c.turn(ctx, caller)
	if err != nil {
		return nil, err
	}
	defer done()
	checks, decided := make([]ImageCheck, len(images)), map[RunningImage]ImageCheck{}
	for i, image := range images {
		check, ok := decided[image]
		if !ok {
			if check, err = c.checkRunning(ctx, image); err != nil {
				return nil, err
			}
			decided[image] = check
		}
		checks[i] = check
	}
	return checks, nil
}

func (c *ImageChecker) checkRunning(ctx context.Context, image RunningImage) (ImageCheck, error) {
	if image.Digest == "" {
		return ImageCheck{Image: image.Image, Decision: Unknown, Reason: noDigest}, nil
	}
	reference, _, _ := strings.Cut(image.Image, "@")
	if colon := strings.LastIndex(reference, ":"); colon > strings.LastIndex(reference, "/") {
		reference = reference[:colon] // without the tag
	}
	reference += "@" + image.Digest
	var platforms []string
	if image.Platform != "" {
		platforms = []string{image.Platform}
	}
	check, err := c.check(ctx, reference, platforms)
	check.Image = reference
	return check, err
}

// check returns the decision about one image.
func (c *ImageChecker) check(ctx context.Context, image string, platforms []string) (ImageCheck, error) {
	host, name, reference, ok := parseImage(image)
	if !ok {
		return ImageCheck{Decision: Unknown, Reason: notReference}, nil
	}
	if host != c.host {
		return ImageCheck{Decision: Unknown, Reason: elsewhere}, nil
	}
	repo, public, err := c.find(ctx, name)
	if err != nil || repo == "" {
		return ImageCheck{Decision: Unknown, Reason: notFound}, err
	}
	m, err := c.repos.Manifest(ctx, repo, reference)
	if errors.Is(err, fault.NotFound) {
		return ImageCheck{Decision: Unknown, Reason: notFound}, nil
	}
	if err != nil {
		return ImageCheck{}, err
	}
	return c.decide(ctx, repo, m, public, platforms)
}

// find returns the repo with a name if the caller may pull from it, and otherwise "". It runs the same statement
// whether the repo exists or not.
func (c *ImageChecker) find(ctx context.Context, name string) (repo resource.UID, public bool, _ error) {
	repo, group, err := c.repos.FindRepo(ctx, strings.Split(name, "/"))
	if err != nil {
		return "", false, err
	}
	denied := c.authz.Require(ctx, resource.ManifestList, cmp.Or(repo, group))
	settings, err := c.repos.RegistrySettings(ctx, cmp.Or(repo.Parent(), group))
	if err != nil || repo == "" || denied != nil && !settings.Public {
		return "", false, err
	}
	return repo, denied != nil, nil
}

// decide returns the decision about a manifest. An index is refused if the image for one of the platforms is.
func (c *ImageChecker) decide(
	ctx context.Context, repo resource.UID, m registry.Manifest, public bool, platforms []string,
) (ImageCheck, error) {
	check := ImageCheck{Decision: Allowed, Repo: repo, Digest: m.Digest}
	why, err := c.gate.Check(ctx, repo, m, public)
	if err != nil || why != "" {
		check.Decision, check.Reason = Refused, registry.PullRefusal(why)
		return check, err
	}
	if !slices.Contains(oci.IndexTypes, m.MediaType) {
		return check, nil
	}
	listed, err := c.listings.Listed(ctx, repo, m)
	if err != nil {
		return check, err
	}
	listed = slices.DeleteFunc(listed, func(v registry.Variant) bool { return !isFor(v, platforms) })
	if len(listed) == 0 {
		return ImageCheck{Decision: Unknown, Reason: noPlatform}, nil
	}
	for _, v := range listed {
		child, err := c.repos.Manifest(ctx, repo, v.Digest)
		if errors.Is(err, fault.NotFound) {
			check.Decision, check.Reason, check.Platform = Unknown, notFound, v.Platform()
			continue
		}
		if err == nil {
			why, err = c.gate.Check(ctx, repo, child, public)
		}
		if err != nil || why != "" {
			check.Decision, check.Reason, check.Platform = Refused, registry.PullRefusal(why), v.Platform()
			return check, err
		}
	}
	return check, nil
}

// isFor reports whether an image is for one of the platforms. An image without a platform is for all of them.
func isFor(v registry.Variant, platforms []string) bool {
	named := v.Platform()
	return len(platforms) == 0 || named == "" || slices.ContainsFunc(platforms, func(p string) bool {
		return named == p || strings.HasPrefix(named, p+"/")
	})
}

// parseImage splits the reference of an image as containerd does. A name without a host belongs to another registry, so
// its host is "".
func parseImage(image string) (host, name, reference string, ok bool) {
	rest, digest, byDigest := strings.Cut(image, "@")
	first, path, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(first, ".:") || first == "localhost" {
		host, rest = first, path
	}
	name, tag, tagged := strings.Cut(rest, ":")
	reference = cmp.Or(digest, tag, "latest")
	switch {
	case byDigest && digest == "", tagged && !registry.ValidTag(tag), byDigest && oci.TagOf(reference) != "":
		return "", "", "", false
	}
	return host, name, reference, oci.ValidName(name) && oci.CheckReference(reference) == nil
}
