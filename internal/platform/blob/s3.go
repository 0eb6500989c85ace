package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// addressTime is how long an address that Address returns can be used.
const addressTime = 20 * time.Minute

// maxListed is the number of keys, uploads or parts that one request asks for. S3 returns no more.
const maxListed = 1000

// amazon is the endpoint of Amazon S3. The client library knows the addresses of its regions.
const amazon = "https://s3.amazonaws.com"

// A Bucket is the location of a bucket, and the credentials for it.
type Bucket struct {
	Name      string
	Region    string
	Endpoint  string // such as http://127.0.0.1:7070; "" means the endpoint of the region
	Prefix    string // common prefix of the keys
	AccessKey string // "" means credentials from the environment, the credentials file, or the role of the machine
	SecretKey string

	// Transport makes the requests; nil means a transport that only this Storage uses.
	Transport http.RoundTripper
}

// An S3 is a Storage in a bucket of a service that speaks S3.
type S3 struct {
	core   *minio.Core
	bucket string
	region string
	root   string // prefix of all keys: "" or a text that ends with a slash
}

var _ Storage = (*S3)(nil)

// NewS3 returns the Storage in a bucket. It makes no request.
func NewS3(b Bucket) (*S3, error) {
	endpoint := b.Endpoint
	lookup := minio.BucketLookupPath
	if endpoint == "" {
		endpoint, lookup = amazon, minio.BucketLookupAuto
	}
	u, err := url.Parse(endpoint)
	if err == nil && strings.Trim(u.Path, "/") != "" {
		err = errors.New("the address of the service has a path")
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", b.Name, err)
	}
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds: b.credentials(), Secure: u.Scheme == "https", Region: b.Region, BucketLookup: lookup, Transport: b.Transport,
	})
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", b.Name, err)
	}
	root := strings.TrimLeft(strings.TrimRight(b.Prefix, "/")+"/", "/")
	return &S3{core: core, bucket: b.Name, region: b.Region, root: root}, nil
}

// credentials returns the credentials of the bucket. If the configuration has none, they come from the first of
// these sources that has some: the environment, the credentials file, the token of a pod, and the machine or
// container.
func (b Bucket) credentials() *credentials.Credentials {
	if b.AccessKey != "" {
		return credentials.NewStaticV4(b.AccessKey, b.SecretKey, "")
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Region: b.Region},
	})
}

// Kind implements Storage.
func (s *S3) Kind() string { return "s3" }

func (s *S3) key(path string) string { return s.root + strings.TrimLeft(path, "/") }

// path returns the path of a key.
func (s *S3) path(key string) string { return "/" + strings.TrimPrefix(key, s.root) }

// Size implements Storage.
func (s *S3) Size(ctx context.Context, path string) (int64, error) {
	info, err := s.core.StatObject(ctx, s.bucket, s.key(path), minio.StatObjectOptions{})
	if err == nil {
		return info.Size, nil
	}
	if err = s.failure("look for", path, err); Missing(err) {
		return -1, nil
	}
	// The response to HEAD has no body that describes the error.
	_, reason := s.Names(ctx, path)
	return 0, cmp.Or(reason, err)
}

// Open implements Storage.
func (s *S3) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	return s.OpenAt(ctx, path, 0)
}

// OpenAt implements Storage.
func (s *S3) OpenAt(ctx context.Context, path string, offset int64) (io.ReadCloser, error) {
	var o minio.GetObjectOptions
	if offset > 0 {
		if err := o.SetRange(offset, 0); err != nil {
			return nil, err
		}
	}
	body, _, _, err := s.core.GetObject(ctx, s.bucket, s.key(path), o)
	if err != nil {
		return nil, s.failure("open", path, err)
	}
	return body, nil
}

// Put implements Storage.
func (s *S3) Put(ctx context.Context, path string, content io.Reader) error {
	return put(ctx, s, path, content)
}

// Remove implements Storage.
func (s *S3) Remove(ctx context.Context, path string) error {
	err := s.core.RemoveObject(ctx, s.bucket, s.key(path), minio.RemoveObjectOptions{})
	return unlessMissing(s.failure("remove", path, err))
}

// RemoveAll implements Storage.
func (s *S3) RemoveAll(ctx context.Context, dir string) error {
	return s.Walk(ctx, dir, func(f File) error { return s.Remove(ctx, f.Path) })
}

// Discard implements Storage.
func (s *S3) Discard(ctx context.Context, path string) error {
	return errors.Join(s.Remove(ctx, path), s.Abort(ctx, path))
}

// Abort implements Storage.
func (s *S3) Abort(ctx context.Context, path string) error {
	uploads, err := s.uploads(ctx, path)
	for _, id := range uploads {
		failed := s.failure("abort", path, s.core.AbortMultipartUpload(ctx, s.bucket, s.key(path), id))
		err = errors.Join(err, unlessMissing(failed))
	}
	return err
}

// uploads returns the ids of the unfinished uploads of a file.
func (s *S3) uploads(ctx context.Context, path string) (ids []string, _ error) {
	key := s.key(path)
	err := s.eachUpload(ctx, key, func(u minio.ObjectMultipartInfo) error {
		if u.Key == key { // otherwise the path is only a prefix of the upload's key
			ids = append(ids, u.UploadID)
		}
		return nil
	})
	if err != nil {
		return nil, s.failure("look for uploads of", path, err)
	}
	return ids, nil
}

// eachUpload calls each for the unfinished uploads whose key begins with a prefix.
func (s *S3) eachUpload(ctx context.Context, prefix string, each func(minio.ObjectMultipartInfo) error) error {
	for key, id := "", ""; ; {
		page, err := s.core.ListMultipartUploads(ctx, s.bucket, prefix, key, id, "", maxListed)
		if err != nil {
			return err
		}
		for _, u := range page.Uploads {
			if err := each(u); err != nil {
				return err
			}
		}
		if !page.IsTruncated || page.NextKeyMarker == key && page.NextUploadIDMarker == id {
			return nil
		}
		key, id = page.NextKeyMarker, page.NextUploadIDMarker
	}
}

// Unfinished implements Storage.
func (s *S3) Unfinished(ctx context.Context, dir string, each func(File) error) error {
	err := s.eachUpload(ctx, s.key(dir)+"/", func(u minio.ObjectMultipartInfo) error {
		return each(File{Path: s.path(u.Key), ModTime: u.Initiated})
	})
	return s.failure("list", dir, err)
}

// list calls each for all keys below a folder. If deep is false, it calls each only for the keys
// and folders directly in the folder.
func (s *S3) list(ctx context.Context, dir string, deep bool, each func(minio.ObjectInfo) error) error {
	prefix := s.key(dir)
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	o := minio.ListObjectsOptions{Prefix: prefix, Recursive: deep, MaxKeys: maxListed}
	for found := range s.core.Client.ListObjectsIter(ctx, s.bucket, o) {
		if found.Err != nil {
			return s.failure("list", dir, found.Err)
		}
		if found.Key == prefix { // some services have an object for a folder
			continue
		}
		if err := each(found); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Names implements Storage.
func (s *S3) Names(ctx context.Context, dir string) (names []string, _ error) {
	err := s.list(ctx, dir, false, func(o minio.ObjectInfo) error {
		names = append(names, path.Base(o.Key))
		return nil
	})
	return names, err
}

// Walk implements Storage.
func (s *S3) Walk(ctx context.Context, dir string, each func(File) error) error {
	return s.list(ctx, dir, true, func(o minio.ObjectInfo) error {
		if strings.HasSuffix(o.Key, "/") {
			return nil
		}
		return each(File{s.path(o.Key), o.Size, o.LastModified})
	})
}

// Address implements Storage.
func (s *S3) Address(ctx context.Context, path string) (string, error) {
	u, err := s.core.PresignedGetObject(ctx, s.bucket, s.key(path), addressTime, nil)
	if err != nil {
		return "", s.failure("sign the address of", path, err)
	}
	return u.String(), nil
}

// MinChunk implements Storage.
func (s *S3) MinChunk() int64 { return minPart }

// failure returns an error that names the operation that failed, and what to do about it if the
// cause is known.
func (s *S3) failure(operation, path string, err error) error {
	if err == nil {
		return nil
	}
	refused, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok {
		return fmt.Errorf("%s %s: %w", operation, path, err)
	}
	switch refused.Code {
	case minio.NoSuchKey, minio.NoSuchUpload:
		return fmt.Errorf("%s: %w", operation, missing(path))
	case minio.NoSuchBucket:
		return fmt.Errorf("%s %s: there is no bucket %s: %w", operation, path, s.bucket, err)
	case "AuthorizationHeaderMalformed", "InvalidRegion", "PermanentRedirect", "AuthorizationQueryParametersError":
		where := "another region"
		if refused.Region != "" {
			where = "region " + refused.Region
		}
		return fmt.Errorf("%s %s: the bucket %s is in %s, not in %s (s3_region): %w", operation, path, s.bucket, where,
			s.region, err)
	case "RequestTimeTooSkewed":
		return fmt.Errorf("%s %s: the clock of this machine and that of the bucket's service are too far apart: %w",
			operation, path, err)
	}
	return fmt.Errorf("%s %s: %s: %w", operation, path, refused.Code, err)
}

// putObject writes a whole file in one request.
func (s *S3) putObject(ctx context.Context, path string, content []byte) error {
	err := upload(ctx, content, func(body io.Reader) error {
		_, err := s.core.PutObject(ctx, s.bucket, s.key(path), body, int64(len(content)), "", "",
			minio.PutObjectOptions{ContentType: contentType})
		return err
	})
	return s.failure("write", path, err)
}
