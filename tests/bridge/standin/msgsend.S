/* objc_msgSend, which GCC's libobjc does not have: it looks a method up and leaves the call to the
 * compiler.  All registers that may hold an argument are kept around the look-up, and the method is
 * jumped to, so that it finds the stack as its caller left it.  A message to nil gives zeros. */
#if defined(__x86_64__)
	.text
	.p2align 4
	.globl	objc_msgSend
	.type	objc_msgSend, @function
objc_msgSend:
	.cfi_startproc
	testq	%rdi, %rdi
	jz	2f
	/* 7 general registers and 8 vectors: 56 + 128 = 184, and 8 of the return address: aligned */
	subq	$184, %rsp
	.cfi_adjust_cfa_offset 184
	movups	%xmm0, (%rsp)
	movups	%xmm1, 16(%rsp)
	movups	%xmm2, 32(%rsp)
	movups	%xmm3, 48(%rsp)
	movups	%xmm4, 64(%rsp)
	movups	%xmm5, 80(%rsp)
	movups	%xmm6, 96(%rsp)
	movups	%xmm7, 112(%rsp)
	movq	%rdi, 128(%rsp)
	movq	%rsi, 136(%rsp)
	movq	%rdx, 144(%rsp)
	movq	%rcx, 152(%rsp)
	movq	%r8, 160(%rsp)
	movq	%r9, 168(%rsp)
	movq	%rax, 176(%rsp)
	call	objc_msg_lookup@PLT
	movq	%rax, %r11
	movq	176(%rsp), %rax
	movq	168(%rsp), %r9
	movq	160(%rsp), %r8
	movq	152(%rsp), %rcx
	movq	144(%rsp), %rdx
	movq	136(%rsp), %rsi
	movq	128(%rsp), %rdi
	movups	112(%rsp), %xmm7
	movups	96(%rsp), %xmm6
	movups	80(%rsp), %xmm5
	movups	64(%rsp), %xmm4
	movups	48(%rsp), %xmm3
	movups	32(%rsp), %xmm2
	movups	16(%rsp), %xmm1
	movups	(%rsp), %xmm0
	addq	$184, %rsp
	.cfi_adjust_cfa_offset -184
	jmp	*%r11
2:	xorl	%eax, %eax
	xorl	%edx, %edx
	xorps	%xmm0, %xmm0
	xorps	%xmm1, %xmm1
	ret
	.cfi_endproc
	.size	objc_msgSend, .-objc_msgSend
#elif defined(__aarch64__)
	.text
	.p2align 4
	.globl	objc_msgSend
	.type	objc_msgSend, %function
objc_msgSend:
	.cfi_startproc
	cbz	x0, 2f
	/* x0-x8, the frame and the return address, 8 vectors: 88 + 128 = 216, rounded up to 224 */
	sub	sp, sp, #224
	.cfi_adjust_cfa_offset 224
	stp	q0, q1, [sp]
	stp	q2, q3, [sp, #32]
	stp	q4, q5, [sp, #64]
	stp	q6, q7, [sp, #96]
	stp	x0, x1, [sp, #128]
	stp	x2, x3, [sp, #144]
	stp	x4, x5, [sp, #160]
	stp	x6, x7, [sp, #176]
	stp	x8, x30, [sp, #192]
	.cfi_rel_offset x30, 200
	bl	objc_msg_lookup
	mov	x17, x0
	ldp	x8, x30, [sp, #192]
	.cfi_restore x30
	ldp	x6, x7, [sp, #176]
	ldp	x4, x5, [sp, #160]
	ldp	x2, x3, [sp, #144]
	ldp	x0, x1, [sp, #128]
	ldp	q6, q7, [sp, #96]
	ldp	q4, q5, [sp, #64]
	ldp	q2, q3, [sp, #32]
	ldp	q0, q1, [sp]
	add	sp, sp, #224
	.cfi_adjust_cfa_offset -224
	br	x17
2:	mov	x0, xzr
	mov	x1, xzr
	movi	v0.2d, #0
	movi	v1.2d, #0
	ret
	.cfi_endproc
	.size	objc_msgSend, .-objc_msgSend
#else
#error "objc_msgSend: no trampoline for this processor"
#endif
	.section .note.GNU-stack,"",%progbits
