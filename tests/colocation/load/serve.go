package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net"
	"net/http"
)

// pageBytes is the length of the page that the service compresses for each request.
const pageBytes = 48 << 10

// serve is a service for load if no other is installed: it compresses a page of words for each request. It prints its address when it
// listens, and serves until it is killed.
func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	for i := 0; page.Len() < pageBytes; i++ {
		fmt.Fprintf(&page, "<p>line %d of a page: %x %x %x</p>\n", i, i*2654435761, i*40503, i*i)
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Encoding", "gzip")
		compressed := gzip.NewWriter(w)
		if _, err := compressed.Write(page.Bytes()); err != nil {
			return // the client has disconnected
		}
		_ = compressed.Close()
	}))
}
