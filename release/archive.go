package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"os"
	"time"

	"github.com/klauspost/compress/gzip"
)

// writeArchive writes files as NAME.zip for Windows, and as NAME.tar.gz otherwise.
func writeArchive(name string, on platform, files []file, date time.Time) error {
	if on.os == "windows" {
		data, err := zipOf(files, date)
		if err != nil {
			return err
		}
		return os.WriteFile(name+".zip", data, 0o644)
	}
	data, err := tarOf(files, date)
	if err != nil {
		return err
	}
	if data, err = gzipOf(data); err != nil {
		return err
	}
	return os.WriteFile(name+".tar.gz", data, 0o644)
}

// tarOf returns a tar of files that all belong to root.
func tarOf(files []file, date time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range sorted(files) {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.path, Mode: int64(f.mode.Perm()), Size: int64(len(f.data)),
			ModTime: date, Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func zipOf(files []file, date time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range sorted(files) {
		header := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: date}
		header.SetMode(f.mode)
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// gzipOf compresses data, without a name or a date in the header.
func gzipOf(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err := w.Close()
	return b.Bytes(), err
}
